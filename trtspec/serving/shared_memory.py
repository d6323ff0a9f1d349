"""Regions under /dev/shm that a server's Python backend made: they outlive a server that was killed."""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path

SHM = Path("/dev/shm")


def new_prefix() -> str:
    """No other server's regions begin so."""
    return f"trtspec-{uuid.uuid4().hex[:12]}-"


def remove_regions(prefix: str) -> None:
    if not prefix.startswith("trtspec-"):
        raise ValueError(f"not ours: {prefix!r}")
    for region in SHM.glob(f"{prefix}*"):
        with contextlib.suppress(FileNotFoundError):
            region.unlink()


def processes_of(prefix: str) -> dict[int, str]:
    """Process id -> model, of the stubs that run with these regions (their command lines name both)."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if any(word.startswith(prefix) for word in words) and len(words) > 1:
                found[int(entry.name)] = Path(words[1]).parent.parent.name
    return found
