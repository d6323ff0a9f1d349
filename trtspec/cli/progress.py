"""How long work is shown: lines on stderr, and a bar where stderr is a terminal."""

from __future__ import annotations

import sys

import click

WIDTH = 30


def say(text: object) -> None:
    click.echo(str(text), err=True)


class Bar:
    """One line that is drawn over; nothing where nobody looks."""

    def __init__(self) -> None:
        self._shown = -1

    def __call__(self, label: str, done: int, total: int) -> None:
        percent = 100 if total <= 0 else min(100, 100 * done // total)
        if percent == self._shown or not sys.stderr.isatty():
            return
        self._shown = percent
        filled = WIDTH * percent // 100
        click.echo(f"\r{label} [{'#' * filled}{'-' * (WIDTH - filled)}] {percent:3}%", err=True, nl=percent == 100)
