"""One supervisor at an address at a time: a lock on a file, which the system gives back when its holder dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = "lock"


class Lock:
    """Held from ``take`` to ``release``. Processes that the holder starts do not inherit it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def take(folder: Path) -> Lock | None:
    """None where another holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return Lock(descriptor)


@contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Whether nobody else holds it; then it is ours meanwhile."""
    lock = take(folder)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            lock.release()
