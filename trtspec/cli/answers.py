"""Where ``trtspec run`` writes: stdout, or a file that appears under its name only when it is complete."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from trtspec.errors import UserError


def check_out(out: Path | None) -> None:
    """What would make the writing fail is said before any work."""
    if out is None:
        return
    before = _state(out)
    if before is not None and not stat.S_ISREG(before.st_mode):
        if stat.S_ISDIR(before.st_mode):
            raise _unwritable(out, "it is a folder")
        return
    folder = _target(out).parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise _unwritable(out, f"{folder} is no folder that can be written to")


@contextlib.contextmanager
def writer(out: Path | None) -> Iterator[Callable[[str], object]]:
    """Takes whole lines. A link stays and its target is replaced; what exists and is no regular file (a device, a pipe)
    is written to as it is."""
    if out is None:
        yield _print
        return
    before = _state(out)
    if before is not None and not stat.S_ISREG(before.st_mode):
        with _through(out) as write:
            yield write
        return
    mode = 0o666 & ~_umask() if before is None else stat.S_IMODE(before.st_mode)
    with _replacing(out, _target(out), mode) as write:
        yield write


@contextlib.contextmanager
def _through(out: Path) -> Iterator[Callable[[str], object]]:
    with _explained(out):
        file = out.open("w", encoding="utf-8", newline="\n", buffering=1)
    try:
        yield _explaining(out, file)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            file.close()
        raise
    with _explained(out):
        file.close()


@contextlib.contextmanager
def _replacing(out: Path, target: Path, mode: int) -> Iterator[Callable[[str], object]]:
    with _explained(out):
        handle, name = tempfile.mkstemp(prefix=".trtspec-", suffix=".partial", dir=target.parent)
    file = os.fdopen(handle, "w", encoding="utf-8", newline="\n")
    try:
        yield _explaining(out, file)
        with _explained(out):
            file.flush()
            os.fsync(file.fileno())
            os.chmod(name, mode)
            os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
    finally:
        with contextlib.suppress(OSError):  # what could not be flushed was told already
            file.close()


def _explaining(out: Path, file: IO[str]) -> Callable[[str], object]:
    def write(text: str) -> None:
        with _explained(out):
            file.write(text)

    return write


@contextlib.contextmanager
def _explained(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _unwritable(out, error.strerror or str(error)) from error


def _state(out: Path) -> os.stat_result | None:
    """Of what the name leads to; None where there is nothing yet."""
    try:
        return out.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unwritable(out, error.strerror or str(error)) from error


def _target(out: Path) -> Path:
    return Path(os.path.realpath(out))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _unwritable(out: Path, reason: str) -> UserError:
    return UserError(f"{out} cannot be written: {reason}", code="out_file", where=str(out), hint="name another file")


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
