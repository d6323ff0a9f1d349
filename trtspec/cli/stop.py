"""``trtspec stop``: ends a server that `trtspec serve` started."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtspec.errors import UserError

if TYPE_CHECKING:
    from trtspec.serving.record import Record


@click.command()
@click.argument("spec_file", metavar="[SPEC]", required=False, type=click.Path(path_type=Path))
@click.option("--url", metavar="U", help="Where the server listens, as `serve` said.")
def command(spec_file: Path | None, url: str | None) -> None:
    """Stop a server and everything it started, within 20 seconds.

    Without SPEC and --url: the only server that runs. Exit 0 also when it is already gone.
    """
    from trtspec.serving.launch import end

    found = _found(spec_file, url)
    for record in found:
        click.echo(f"stopping {record.name} at {record.http}", err=True)
        end(record)
    if not found:
        click.echo("nothing to stop", err=True)


def _found(spec_file: Path | None, url: str | None) -> list[Record]:
    from trtspec.serving import record as records
    from trtspec.spec.load import load_spec

    if spec_file is not None and url is not None:
        raise click.UsageError("give SPEC or --url, not both")
    if spec_file is not None:
        return records.of_spec(load_spec(spec_file), spec_file)
    everyone = records.everyone()
    if url is not None:
        return [record for record in everyone if url.rstrip("/") in (record.http, record.grpc)] or _foreign(url)
    if len(everyone) > 1:
        listed = ", ".join(f"{record.name} at {record.http}" for record in everyone)
        raise UserError(f"{len(everyone)} servers run: {listed}", code="which_server", hint="name one with --url")
    return everyone


def _foreign(url: str) -> list[Record]:
    """Nothing of ours is there. Raises where somebody else's server is."""
    from trtspec.serving.client import connect

    if connect(url).ready():
        raise UserError(
            f"the server at {url} was not started by `trtspec serve` on this machine",
            code="foreign_server",
            where=url,
            hint="stop it where it was started",
        )
    return []
