"""SHA-256 of the files a checkpoint consists of, remembered by path, size and modification time."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from trtspec.checkpoints.safetensors import weight_files
from trtspec.errors import SourceError

SMALL_FILES = (
    "config.json",
    "generation_config.json",
    "hf_quant_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
)
_CHUNK = 1 << 22


def fingerprint(path: Path, cache: Path) -> dict[str, str]:
    """Relative name to hexadecimal SHA-256, in order of names: of one file, or of what counts in a model folder."""
    try:
        if path.is_file():
            return {path.name: hash_file(path, cache)}
        return {file.name: hash_file(file, cache) for file in _files(path)}
    except OSError as error:
        raise SourceError(f"cannot read {error.filename or path}: {error.strerror}", where=str(path)) from error


def hash_file(file: Path, cache: Path) -> str:
    """A file of the same path, size and modification time is hashed once."""
    at = file.resolve()
    state = at.stat()
    known = {"path": str(at), "size": state.st_size, "mtime_ns": state.st_mtime_ns}
    memory = cache / "hashes" / f"{hashlib.sha256(str(at).encode()).hexdigest()[:32]}.json"
    remembered = _recall(memory, known)
    if remembered is not None:
        return remembered
    digest = hashlib.sha256()
    with at.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    write_atomically(memory, json.dumps({**known, "sha256": digest.hexdigest()}))
    return digest.hexdigest()


def write_atomically(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, staged = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.replace(staged, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(staged)
        raise


def _recall(memory: Path, known: Mapping[str, object]) -> str | None:
    try:
        entry = json.loads(memory.read_bytes())
        sha256 = entry.pop("sha256")
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None
    return sha256 if entry == known and isinstance(sha256, str) else None


def _files(folder: Path) -> Iterator[Path]:
    """Configuration, tokenizer and the weights that would be read; a folder of a tokenizer has no weights."""
    weights = set(weight_files(folder))
    for file in sorted(folder.iterdir()):
        if file.is_file() and (file in weights or file.name in SMALL_FILES):
            yield file
