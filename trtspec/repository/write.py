"""Puts a repository on the disk: staged beside its place, then swapped in by one rename.

One folder may hold the models of several specs: those of others are carried over.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

from trtspec.errors import StoreError
from trtspec.repository.interface import spec_of

MARKER = ".trtspec"  # at the top of every repository we wrote: nothing else may be replaced
KEPT = "README.md"  # carried over when a repository is replaced; Triton does not look at files at the top
_RENAME_EXCHANGE = 2  # linux/fs.h
_AT_FDCWD = -100  # linux/fcntl.h


def write_tree(files: Mapping[str, str], path: Path) -> None:
    """All of ``files`` at ``path`` in the place of their specs' models, or what was there before.

    A reader sees one or the other, never a mixture.
    """
    path = path.resolve()
    _refuse_foreign(path)
    _remove_leftovers(path)
    staged = path.parent / f".{path.name}.staged-{uuid.uuid4().hex}"
    try:
        _fill(staged, {**files, MARKER: "written by trtspec build\n"})
        _carry_over(path, staged, {spec_of(name.partition("/")[0]) for name in files})
        _swap(staged, path)
    except OSError as error:
        raise StoreError(
            f"cannot write the model repository {path}: {error.strerror or error}",
            code="repository_write",
            where=str(path),
            hint="free some space, or name another folder with --model-repo (a mount point itself cannot be replaced)",
        ) from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _refuse_foreign(path: Path) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise StoreError(f"{path} is not a folder", code="repository_foreign", where=str(path))
    found = sorted(entry.name for entry in path.iterdir() if entry.name != KEPT)
    if found and MARKER not in found:
        raise StoreError(
            f"{path} holds {found[0]!r} and was not written by trtspec; it is left alone",
            code="repository_foreign",
            where=str(path),
            hint="name an empty or a new folder with --model-repo",
        )


def _carry_over(path: Path, staged: Path, replaced: set[str]) -> None:
    """The reader's notes and the models of other specs."""
    if (path / KEPT).is_file():
        shutil.copy2(path / KEPT, staged / KEPT)
    for model in path.glob("*/config.pbtxt"):
        if spec_of(model.parent.name) not in replaced:
            shutil.copytree(model.parent, staged / model.parent.name)


def _remove_leftovers(path: Path) -> None:
    """What a killed run staged. Only one build at a time writes here: the store's lock holds the others off."""
    for leftover in path.parent.glob(f".{path.name}.staged-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _fill(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("w", encoding="utf-8") as sink:
            sink.write(text)
            sink.flush()
            os.fsync(sink.fileno())


def _swap(staged: Path, path: Path) -> None:
    """``staged`` becomes ``path``; what was at ``path`` is then at ``staged``, to be deleted."""
    if not path.exists():
        os.rename(staged, path)
    elif not _exchanged(staged, path):
        aside = staged.with_name(staged.name + ".old")
        os.rename(path, aside)
        os.rename(staged, path)
        os.rename(aside, staged)


def _exchanged(staged: Path, path: Path) -> bool:
    """Swaps two folders in one step (renameat2 of Linux); False where the system cannot."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return False
    names = (os.fsencode(staged), os.fsencode(path))
    if libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(number, os.strerror(number))
