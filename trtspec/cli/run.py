"""``trtspec run``: a JSONL file of requests, answered in this process by the reference runtime."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtspec.errors import UserError

if TYPE_CHECKING:
    from trtspec.front.batch import Batch, Tally
    from trtspec.front.jsonl import Line
    from trtspec.spec.model import Spec

PROGRESS_SECONDS = 1.0  # between two lines of progress


@click.command()
@click.argument("spec_file", metavar="SPEC", type=click.Path(path_type=Path))
@click.option("--requests", "requests_file", metavar="FILE", required=True, help="One request a line; - is stdin.")
@click.option(
    "-o", "out", metavar="FILE", type=click.Path(path_type=Path), help="Where the answers go; default stdout."
)
@click.option("--engines", default="engines", show_default=True, type=click.Path(path_type=Path), help="The store.")
@click.option("--json", "as_json", is_flag=True, help="With -o: print a JSON summary.")
def command(spec_file: Path, requests_file: str, out: Path | None, engines: Path, as_json: bool) -> None:
    """Answer a JSONL file of requests in this process.

    Always with the reference runtime. Builds what is missing, keeps all requests in flight, and writes one answer a
    line, in the order of the requests. Exit 1 when a line was refused; the others are answered.
    """
    from trtspec.cli.answers import check_out, writer
    from trtspec.front.batch import Tally
    from trtspec.front.jsonl import read_lines
    from trtspec.spec.load import load_spec

    spec = load_spec(spec_file)
    lines = read_lines(_read(requests_file), requests_file)
    check_out(out)
    tally = Tally(len(lines), on_change=_progress())
    began = time.monotonic()
    with writer(out) as write:
        if lines:
            with _opened(spec, engines, tally) as batch:
                began = time.monotonic()
                _answer(batch, lines, write)
    if tally.broken is not None:
        raise RuntimeError(f"the engine failed while it answered: {tally.broken}")  # our bug: the boundary logs it
    if out is not None and as_json:
        summary = {"requests": tally.requests, "failed": tally.failed, "tokens": tally.tokens}
        click.echo(json.dumps({**summary, "seconds": time.monotonic() - began}))
    if tally.failed:
        raise SystemExit(1)


def _answer(batch: Batch, lines: list[Line], write: Callable[[str], object]) -> None:
    for document in batch.run(lines):
        write(json.dumps(document) + "\n")


@contextlib.contextmanager
def _opened(spec: Spec, engines: Path, tally: Tally) -> Iterator[Batch]:
    """Builds what is missing and opens the engine; closes it in any case."""
    from trtspec.runtime import openmp

    openmp.settle()  # before anything brings torch
    from trtspec.artifacts import ensure
    from trtspec.checkpoints.tokenizer import load_tokenizer
    from trtspec.cli.progress import Bar, say
    from trtspec.deploy import engine_options, front_settings, packed_facts
    from trtspec.front.batch import Batch
    from trtspec.front.front import Front
    from trtspec.front.text import stop_checker_factory
    from trtspec.runtime.engine import LocalEngine

    spec = spec.model_copy(update={"runtime": "reference"})
    artifacts = ensure(spec, engines, say, advance=Bar())
    folder = artifacts["target"].path
    facts = packed_facts((folder / "config.json").read_text())
    tokenizer = load_tokenizer(folder)
    options = engine_options(spec, facts, artifacts, vocab_size=tokenizer.vocab_size)
    engine = LocalEngine.open(options, stop_checker_factory(tokenizer))
    try:
        front = Front(front_settings(spec, facts), tokenizer, engine.capabilities())
        yield Batch(front, tokenizer, engine, tally)
    finally:
        engine.close()


def _read(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        shown = "standard input" if name == "-" else name
        raise UserError(
            f"{shown} cannot be read: {error.strerror}",
            code="requests_file",
            where=name,
            hint="name a JSONL file, or -",
        ) from None


def _progress() -> Callable[[Tally], None]:
    last = time.monotonic()

    def show(tally: Tally) -> None:
        nonlocal last
        now = time.monotonic()
        if tally.done == tally.requests or now - last >= PROGRESS_SECONDS:
            last = now
            text = f"run: {tally.done} of {tally.requests} done, {tally.failed} refused, {tally.tokens} tokens"
            click.echo(text, err=True)

    return show
