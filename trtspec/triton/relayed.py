"""How the front knows its unary relay's requests from a client's: a word that only models of one server can say."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# The parameter the relay sends, with the client's own request id. BLS loses the code of an error (Triton 2.51), so the
# relay takes errors as ``status``. From anybody else it is an unknown field.
RELAYED = "trtspec_relayed"


def server_word() -> str:
    """The same in every model's process of this server, another in each start of it, unknown to its clients."""
    parent = os.getppid()
    born = Path(f"/proc/{parent}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    return hashlib.sha256(f"{boot} {parent} {born}".encode()).hexdigest()


def sign(word: str, request_id: str) -> dict[str, str]:
    return {RELAYED: f"{word}:{request_id}"}


def take_sign(word: str, parameters: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """The client's own request id where the relay sent this, and the other parameters."""
    said = parameters.get(RELAYED)
    if not isinstance(said, str) or not said.startswith(f"{word}:"):
        return None, dict(parameters)
    return said.removeprefix(f"{word}:"), {name: value for name, value in parameters.items() if name != RELAYED}
