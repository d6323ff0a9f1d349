"""Models of the Hugging Face hub, in a cache of our own; the commit that a revision meant is pinned when it is fetched.

The hub's library lays a snapshot out as ``hub/models--ORG--NAME/snapshots/COMMIT`` and continues broken downloads. A
record beside it is written when a snapshot is complete; nothing counts as fetched without one.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from trtspec.checkpoints.fingerprint import SMALL_FILES, hash_file, write_atomically
from trtspec.checkpoints.safetensors import INDEX, weight_files
from trtspec.errors import SourceError

ALLOWED = (*SMALL_FILES, "*.safetensors", INDEX)
IGNORED = ("*/*", "consolidated*")  # other formats' copies of the same weights
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class HubSource:
    """``repo`` is ORG/NAME."""

    text: str
    repo: str


def locate(source: HubSource, cache: Path, revision: str | None) -> Path | None:
    """The snapshot that was fetched for this revision; a commit finds it whatever revision it was fetched for."""
    for record in (_record(source, cache, revision or "main"), _record(source, cache, revision or "")):
        try:
            commit = json.loads(record.read_bytes())["commit"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        path = _snapshot(source, cache, str(commit))
        if _COMMIT.fullmatch(str(commit)) and all(file.is_file() for file in weight_files(path)):
            return path
    return None


def fetch(source: HubSource, cache: Path, revision: str | None) -> tuple[Path, str]:
    """The snapshot's folder and its commit. Asks the hub only when the revision has not been fetched."""
    here = locate(source, cache, revision)
    if here is None:
        here = _download(source, cache, revision)
        _verify(source, here, cache)
        for name in {revision or "main", here.name}:
            write_atomically(_record(source, cache, name), json.dumps({"commit": here.name, "revision": name}))
    return here, here.name


def _download(source: HubSource, cache: Path, revision: str | None) -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
    except ImportError as error:
        raise SourceError(
            f"{source.text} needs huggingface_hub, which is not installed",
            where=source.text,
            hint="pip install 'trtspec[cpu]', or name a local folder",
        ) from error
    try:
        path = snapshot_download(
            source.repo,
            revision=revision,
            cache_dir=cache / "hub",
            allow_patterns=list(ALLOWED),
            ignore_patterns=list(IGNORED),
            endpoint=os.environ.get("HF_ENDPOINT"),
            library_name="trtspec",
        )
    except (HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, OSError) as error:
        raise _explained(source, revision, error) from error
    return Path(path)


def _explained(source: HubSource, revision: str | None, error: Exception) -> SourceError:
    """The hub's error in one line, with what to do. Its class names are those of huggingface_hub.errors."""
    names = {kind.__name__ for cause in _causes(error) for kind in type(cause).__mro__}
    if "GatedRepoError" in names:
        message, hint = "is gated", "accept its licence on the hub, and log in with `hf auth login` or HF_TOKEN"
    elif "RevisionNotFoundError" in names:
        message, hint = f"has no revision {revision!r}", "name a branch, a tag or a commit that exists"
    elif "RepositoryNotFoundError" in names:
        message, hint = "is not on the hub, or is private", "check the name; for a private model set HF_TOKEN"
    elif "HfHubHTTPError" in names:
        message, hint = f"cannot be fetched: {_first_line(error)}", "try again later; what was fetched is kept"
    else:
        message = f"cannot be fetched, the hub is not reachable: {_first_line(error)}"
        hint = "connect, check HF_ENDPOINT, HF_HUB_OFFLINE and the disk, or name a local folder"
    return SourceError(f"{source.text} {message}", where=source.text, hint=hint)


def _causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__
    return found


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _verify(source: HubSource, snapshot: Path, cache: Path) -> None:
    """Weights are there and hash to the name the hub's library gave their blob (large files: their SHA-256)."""
    weights = weight_files(snapshot)
    missing = [file.name for file in weights if not file.is_file()]
    if missing:
        raise SourceError(
            f"{source.text} lacks {missing[0]}: models are read from safetensors only",
            where=source.text,
            hint="choose a model that has safetensors weights",
        )
    for file in weights:
        promised = file.resolve().name
        if re.fullmatch(r"[0-9a-f]{64}", promised) and hash_file(file, cache) != promised:
            file.resolve().unlink()
            raise SourceError(
                f"{file.name} of {source.text} did not arrive as the hub has it",
                where=source.text,
                hint="run the command again to fetch the file anew",
            )


def _snapshot(source: HubSource, cache: Path, commit: str) -> Path:
    return cache / "hub" / f"models--{source.repo.replace('/', '--')}" / "snapshots" / commit


def _record(source: HubSource, cache: Path, revision: str) -> Path:
    safe = re.sub(r"[^A-Za-z0-9._-]", lambda match: f"%{ord(match[0]):x}", revision)
    return cache / "hub" / "fetched" / source.repo.replace("/", "--") / f"{safe}.json"
