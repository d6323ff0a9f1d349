"""The standard streams of this process, and what to do when one of them cannot take what is written."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any

import click

_NAMES = ("stdin", "stdout", "stderr")


def settle() -> None:
    """Before any work: no file that is opened later may take the number of a stream that was closed, and a name that is
    no valid text is printed escaped."""
    for number, name in enumerate(_NAMES):
        if getattr(sys, name) is None:
            setattr(sys, name, _closed(number))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _closed(number: int) -> Any:
    """Stands for a closed stream: using stdin or stdout fails as it does on one that is closed, stderr says nothing."""
    flags = (os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)[number]
    handle = os.open(os.devnull, flags)
    if handle != number:
        os.dup2(handle, number)
        os.close(handle)
    return open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False)


def output_fault() -> str | None:
    """Why stdout takes nothing; None where it works. What it refused stays in its buffer and is refused again."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return None


def drop_output() -> None:
    """Nothing more is written to stdout, also not what its buffer holds at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def tell(text: str) -> None:
    """A line for people; who closed stderr does not want it."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(text, err=True)


def print_last(text: str) -> None:
    """The last that goes to stdout. The exit code says the rest where nobody reads it."""
    try:
        click.echo(text)
    except (OSError, ValueError):
        drop_output()


def leave(code: int) -> None:
    """Ends at once. CPython ends by SIGINT, whatever the code, when an interrupt came while it ran ``exec`` on a text,
    as imports of dataclasses do."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
