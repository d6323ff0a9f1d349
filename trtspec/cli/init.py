"""``trtspec init``"""

from __future__ import annotations

from pathlib import Path

import click

from trtspec.errors import UserError
from trtspec.spec.template import DEMO, TEMPLATES, template

TODAY = "# Today: "


@click.command("init")
@click.option(
    "--template", "name", default=DEMO, metavar="NAME", help=f"One of {', '.join(TEMPLATES)}.", show_default=True
)
@click.option("-o", "out", type=click.Path(path_type=Path), metavar="FILE", help="Write here; never overwrites.")
def command(name: str, out: Path | None) -> None:
    """Print or write a commented spec.

    Without --template it runs on any CPU; the others say in their first lines which runtimes build them today.
    """
    text = template(name)
    if out is None:
        click.echo(text, nl=False)
        return
    _write_new(out, text)
    click.echo(f"wrote {out}; today: {_today(text)}\nnext: trtspec check {out}", err=True)


def _today(text: str) -> str:
    """What a template's own comment says of who builds it."""
    return next(line for line in text.splitlines() if line.startswith(TODAY)).removeprefix(TODAY)


def _write_new(out: Path, text: str) -> None:
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise _refused(out, f"{out} exists and is not overwritten", "choose another name, or remove it") from error
    except FileNotFoundError as error:
        raise _refused(
            out, f"the folder {out.parent} does not exist", f"make it first: mkdir -p {out.parent}"
        ) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _refused(out, f"{out} cannot be written: {reason}", "choose another place") from error


def _refused(out: Path, message: str, hint: str) -> UserError:
    return UserError(message, code="unwritable", where=str(out), hint=hint)
