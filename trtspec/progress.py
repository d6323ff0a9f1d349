"""Who is told how a long piece of work goes."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    def say(self, text: str) -> None:
        """One line for people."""
        ...

    def advance(self, label: str, done: int, total: int) -> None:
        """``done`` of ``total`` bytes or pieces of the work called ``label``."""
        ...


class Silent:
    """Tells nobody."""

    def say(self, text: str) -> None:
        pass

    def advance(self, label: str, done: int, total: int) -> None:
        pass
