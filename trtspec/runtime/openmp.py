"""How the threads of a pass wait for each other. Must be settled before torch is imported.

A pass has some two hundred places where its threads meet. GNU's OpenMP lets a thread that waits spin for milliseconds,
which on a machine with other work burns the very time its partner needs: 65 tokens/s of a small model on two idle
cores fell to 16 beside one busy process. Spinning a few hundred rounds (microseconds) before sleeping keeps the 65, and
gives 35 beside the busy process; sleeping at once (OMP_WAIT_POLICY=PASSIVE) gives 53 and 35.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

SPIN = "300"
_USERS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")  # where one of these is set, the user has decided


def chosen(given: Mapping[str, str]) -> dict[str, str]:
    """What to add to the environment ``given``."""
    return {} if any(name in given for name in _USERS) else {"GOMP_SPINCOUNT": SPIN}


def settle() -> None:
    """For this process and those it starts."""
    os.environ.update(chosen(os.environ))
