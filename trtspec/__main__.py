"""``python -m trtspec`` is the ``trtspec`` command."""

from trtspec.cli.main import main

main()
