"""The folder of built outputs: one folder per content key, staged beside it and renamed into place when complete.

::

    engines/<role>-<kind>-<key16>/manifest.json ...   an artifact; the manifest is written last, before the rename
    engines/.staging/<folder>.<pid>-<random>/         what is being written; swept by the next build
    engines/.damaged/<folder>/                        what failed its check, the latest of each
    engines/logs/<folder>.log                         what the step's command printed, the latest of each
    engines/.lock                                     held by the one process that builds; names it
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import platform
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

import trtspec
from trtspec.errors import StoreError
from trtspec.steps import STORE_FORMAT, Step

MANIFEST = "manifest.json"
NO_MANIFEST = "it has no manifest that can be read"
HASHED_ALWAYS = 1 << 26  # bytes; a larger file is hashed again where its time is not the manifest's
Say = Callable[[str], None]
Make = Callable[[Step, Path, Path], None]  # the step, the staging folder it writes into, its log


@dataclass(frozen=True)
class Artifact:
    """A complete folder. ``seconds`` is what its step took when it was built."""

    role: str
    key: str
    path: Path
    cached: bool
    seconds: float
    manifest: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return {
            "role": self.role,
            "key": self.key,
            "path": str(self.path),
            "cached": self.cached,
            "seconds": self.seconds,
        }


class Store:
    """The folder ``root``. Everything that writes runs under ``lock()``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.staging = root / ".staging"
        self.damaged = root / ".damaged"

    def log_of(self, step: Step) -> Path:
        return self.root / "logs" / f"{step.output.name}.log"

    @contextlib.contextmanager
    def lock(self, say: Say) -> Iterator[None]:
        """Makes the folder, waits for its present holder, sweeps what killed builds left. Raises StoreError."""
        with contextlib.ExitStack() as held:
            with _explained(self.root):
                file = held.enter_context(_open_lock(self.root))
                _wait_for(file, self.root, say)
                file.truncate(0)
                json.dump({"pid": os.getpid(), "host": socket.gethostname(), "since": _now()}, file)
                file.flush()
                self._sweep()
            yield

    def find(self, step: Step) -> Artifact | None:
        """The step's artifact, when it is there and whole."""
        return None if step.key is None else self.find_folder(step.role, step.output, step.key)

    def find_folder(self, role: str, folder: Path, key: str) -> Artifact | None:
        manifest = _read_manifest(folder)
        if manifest is None or damage(folder, manifest, key) is not None:
            return None
        return Artifact(role, key, folder, True, manifest["seconds"], manifest)

    def damage_of(self, folder: Path, key: str | None) -> str | None:
        """Why a folder that is there is no whole artifact."""
        manifest = _read_manifest(folder)
        return NO_MANIFEST if manifest is None else damage(folder, manifest, key)

    def make(self, step: Step, make: Make, say: Say, about: Mapping[str, Any] | None = None) -> Artifact:
        """The step's artifact: the one that is there, or made now and renamed into place. ``about`` goes into the
        manifest. What ``make`` raises passes through, after its staging folder is gone."""
        found = self.find(step)
        if found is not None or step.key is None:
            return _keyed(step, found)
        with _explained(self.root):
            self._set_aside(step, say)
            folder = self._staging_folder(step)
            log = self.log_of(step)
            log.parent.mkdir(exist_ok=True)
            log.unlink(missing_ok=True)
            try:
                manifest = _write(step, folder, lambda: make(step, folder, log), about or {})
                os.rename(folder, step.output)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            _sync(self.root)
        return Artifact(step.role, manifest["key"], step.output, False, manifest["seconds"], manifest)

    def _staging_folder(self, step: Step) -> Path:
        self.staging.mkdir(exist_ok=True)
        folder = self.staging / f"{step.output.name}.{os.getpid()}-{secrets.token_hex(4)}"
        folder.mkdir()
        return folder

    def _set_aside(self, step: Step, say: Say) -> None:
        """A folder of that name that is not whole is kept for a look, and its place is freed."""
        if not os.path.lexists(step.output):
            return
        why = self.damage_of(step.output, step.key)
        kept = self.damaged / step.output.name
        self.damaged.mkdir(exist_ok=True)
        _remove(kept)
        os.rename(step.output, kept)
        say(f"{step.output} is damaged ({why}); set aside as {kept} and built again")

    def _sweep(self) -> None:
        """Under the lock nobody else is writing: what is staged was left by a build that was killed."""
        if self.staging.is_dir():
            for left in self.staging.iterdir():
                _remove(left)


def damage(folder: Path, manifest: Mapping[str, Any], key: str | None) -> str | None:
    """What is wrong with an artifact, by its manifest; None when it is whole. Contents are hashed, but for large files
    of the size and time that the manifest says."""
    if manifest.get("key") != key:
        return "its manifest is of another key"
    for name, entry in manifest["outputs"].items():
        try:
            state = (folder / name).stat()
            if state.st_size != entry["bytes"]:
                return f"{name} has {state.st_size} bytes, its manifest says {entry['bytes']}"
            trusted = state.st_size > HASHED_ALWAYS and state.st_mtime_ns == entry.get("mtime_ns")
            if not trusted and sha256(folder / name) != entry["sha256"]:
                return f"the content of {name} has changed"
        except OSError as error:
            return f"{name} is missing" if isinstance(error, FileNotFoundError) else f"{name}: {error.strerror}"
    return None


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _keyed(step: Step, found: Artifact | None) -> Artifact:
    if found is None:
        raise StoreError(f"{step.id} has no key yet, its input is not on disk", where=step.id)
    return found


def _write(step: Step, folder: Path, make: Callable[[], None], about: Mapping[str, Any]) -> dict[str, Any]:
    started, began = _now(), time.monotonic()
    make()
    outputs = {
        str(path.relative_to(folder)): {
            "bytes": path.stat().st_size,
            "mtime_ns": path.stat().st_mtime_ns,
            "sha256": sha256(path),
        }
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    if not outputs:
        raise StoreError(f"{step.id} ended well but wrote nothing", where=step.id)
    manifest = {
        "format": STORE_FORMAT,
        "key": step.key,
        "step": step.to_dict(),
        **about,
        "outputs": outputs,
        "versions": {"trtspec": trtspec.__version__, "python": platform.python_version()},
        "started": started,
        "finished": _now(),
        "seconds": round(time.monotonic() - began, 3),
    }
    for name in outputs:
        _sync(folder / name)
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    _sync(folder / MANIFEST)
    _sync(folder)
    return manifest


def _read_manifest(folder: Path) -> dict[str, Any] | None:
    """None where there is none that we could have written."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    outputs = manifest.get("outputs") if isinstance(manifest, dict) else None
    if not isinstance(outputs, dict) or not outputs or not all(map(_is_output, outputs, outputs.values())):
        return None
    return manifest if "key" in manifest and isinstance(manifest.get("seconds"), int | float) else None


def _is_output(name: str, entry: object) -> bool:
    inside = "\0" not in name and not name.startswith("/") and ".." not in name.split("/")
    return inside and isinstance(entry, dict) and {"bytes", "sha256"} <= entry.keys()


@contextlib.contextmanager
def _open_lock(root: Path) -> Iterator[IO[str]]:
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("a+", encoding="utf-8") as file:
        yield file


def _wait_for(file: IO[str], root: Path, say: Say) -> None:
    """The kernel frees the lock when its holder ends, however it ends."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"{root} is in use by {_holder(file)}; waiting for it to finish")
        fcntl.flock(file, fcntl.LOCK_EX)


def _holder(file: IO[str]) -> str:
    file.seek(0)
    try:
        held = json.loads(file.read())
        return f"process {held['pid']} on {held['host']} since {held['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"


@contextlib.contextmanager
def _explained(root: Path) -> Iterator[None]:
    """The system's errors about this folder, in words that say what to do; others pass."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        if not full and not str(error.filename or "").startswith(str(root)):
            raise
        raise _store_error(error, root) from error


def _store_error(error: OSError, root: Path) -> StoreError:
    where = str(error.filename or root)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreError(
            f"no space left for {root}; nothing half-written was kept",
            code="disk_full",
            where=where,
            hint="free some space, or build into another folder with --engines",
        )
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return StoreError(
            f"{root} cannot be used as a folder: {where} is not one",
            code="not_a_folder",
            where=where,
            hint="move it away, or name another folder with --engines",
        )
    return StoreError(
        f"{root} cannot be written: {error.strerror or error}",
        code="unwritable",
        where=where,
        hint="name a folder that you may write with --engines",
    )


def _remove(path: Path) -> None:
    """A link goes, never what it points to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
