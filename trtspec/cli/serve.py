"""``trtspec serve``: a tritonserver, started, watched and stopped."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from trtspec.errors import TrtspecError, UserError

if TYPE_CHECKING:
    from trtspec.serving.launch import Launch, Server
    from trtspec.serving.record import Record


@click.command()
@click.argument("spec_file", metavar="SPEC", type=click.Path(path_type=Path))
@click.option("--engines", default="engines", show_default=True, type=click.Path(path_type=Path), help="The store.")
@click.option(
    "--model-repo", default="model_repo", show_default=True, type=click.Path(path_type=Path), help="What build wrote."
)
@click.option("--detach", is_flag=True, help="Return when ready; the server goes on, supervised.")
@click.option("--container", "place", flag_value="container", help="Run NVIDIA's container.")
@click.option("--in-place", "place", flag_value="in-place", help="Run the tritonserver of this machine (default).")
@click.option("--json", "as_json", is_flag=True, help="Print where it listens as JSON, once ready.")
def command(spec_file: Path, engines: Path, model_repo: Path, detach: bool, place: str | None, as_json: bool) -> None:
    """Launch tritonserver with this spec's models, wait until a token comes out of it, and supervise it.

    Its log is kept in the folder that TRTSPEC_CACHE names (default ~/.cache/trtspec).

    Ctrl-C or SIGTERM stops the server and everything it started; so does `trtspec stop`.
    """
    from trtspec.repository.interface import MODELS
    from trtspec.serving.deployment import require_built
    from trtspec.serving.endpoints import Endpoints
    from trtspec.serving.launch import Launch
    from trtspec.spec.load import load_spec

    spec = load_spec(spec_file)
    if place == "container":
        raise UserError(
            "the reference runtime is served in place: NVIDIA's container brings no trtspec",
            code="no_container",
            hint="leave --container out",
        )
    require_built(spec, engines, model_repo)
    launch = Launch(spec.name, spec_file, Path(os.path.realpath(model_repo)), Endpoints.of(spec), len(MODELS))
    launch.require_free(spec)
    if detach:
        _detached(launch, engines, as_json)
    else:
        _attached(launch, as_json)


def _attached(launch: Launch, as_json: bool) -> None:
    from trtspec.cli.main import INTERRUPTED
    from trtspec.serving.launch import start

    with _stop_signal() as (stop, seen), start(launch) as server:
        click.echo(f"starting {launch.name}; log: {launch.log}", err=True)
        if server.wait_ready(stop):
            _tell(server.record, as_json)
            _supervised(server, stop)
            as_json = False  # its one document is out
        click.echo(f"stopping {launch.name}", err=True)
    if signal.SIGINT in seen:
        if as_json:
            raise KeyboardInterrupt
        click.echo("interrupted", err=True)
        raise SystemExit(INTERRUPTED)


def _supervised(server: Server, stop: threading.Event) -> None:
    """What ends a server that was ready is told to people only: with --json its document is out already."""
    from trtspec.cli.main import message_of

    try:
        server.supervise(stop)
    except TrtspecError as error:
        click.echo(message_of(error), err=True)
        raise SystemExit(error.exit_code) from error


def _detached(launch: Launch, engines: Path, as_json: bool) -> None:
    from trtspec.serving.detach import start_supervisor

    with _stop_signal() as (stop, _):
        record = start_supervisor(launch, engines, stop)
    if record is None:
        raise KeyboardInterrupt
    _tell(record, as_json)


def _tell(record: Record, as_json: bool) -> None:
    from trtspec.serving.client import DEFAULT_URL

    if as_json:
        click.echo(json.dumps(record.summary()))
        return
    click.echo(f"{record.name} is ready at {record.http} and {record.grpc}; metrics at {record.metrics}", err=True)
    at = "" if record.http == DEFAULT_URL else f" --url {record.http}"
    click.echo(f"try it with: trtspec generate 'Hello'{at}", err=True)
    click.echo(f"stop it with: trtspec stop --url {record.http}", err=True)


@contextmanager
def _stop_signal() -> Iterator[tuple[threading.Event, list[int]]]:
    """Set by SIGINT, SIGTERM and SIGHUP; the list tells which came."""
    stop, seen = threading.Event(), list[int]()

    def on_signal(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield stop, seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
