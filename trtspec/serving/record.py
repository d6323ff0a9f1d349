"""What is known of the servers that run on this machine: one JSON file each, so that `stop` finds them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtspec import process
from trtspec.inventory import cache_folder
from trtspec.spec.model import Spec

SERVER_LOG = "server.log"
SUPERVISOR_LOG = "supervisor.log"  # of a detached one


@dataclass(frozen=True)
class Record:
    """``pid`` is the supervisor's, ``born`` its start in clock ticks (a pid alone may have been given to another)."""

    pid: int
    born: str
    name: str
    spec: str
    http: str
    grpc: str
    metrics: str
    log: str
    shared_memory: str
    server_pid: int | None = None
    server_born: str | None = None
    ready: bool = False
    stopping: bool = False

    def summary(self) -> dict[str, Any]:
        """What `serve --detach` answers."""
        return {name: getattr(self, name) for name in ("pid", "name", "http", "grpc", "metrics", "log")}

    @property
    def supervised(self) -> bool:
        return lives(self.pid, self.born)


def servers_folder() -> Path:
    return cache_folder() / "servers"


def folder_of(http: str) -> Path:
    """The one folder of the server at that URL: its record, its log, its backends."""
    return servers_folder() / http.removeprefix("http://").replace(":", "_").replace("[", "").replace("]", "")


def logs_of(url: str) -> list[Path]:
    """The logs that a server at that URL (of HTTP, or that of a record) left, the server's own first."""
    http = next((record.http for record in everyone() if record.grpc == url), url).rstrip("/")
    found = [folder_of(http) / name for name in (SERVER_LOG, SUPERVISOR_LOG)]
    return [log for log in found if log.is_file()]


def save(record: Record) -> None:
    folder = folder_of(record.http)
    folder.mkdir(parents=True, exist_ok=True)
    staged = folder / f"record.json.{os.getpid()}"
    staged.write_text(json.dumps(dataclasses.asdict(record), indent=2) + "\n")
    staged.replace(folder / "record.json")


def load(http: str) -> Record | None:
    return _read(folder_of(http) / "record.json")


def forget(http: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        (folder_of(http) / "record.json").unlink()


def everyone() -> list[Record]:
    found = [_read(file) for file in sorted(servers_folder().glob("*/record.json"))]
    return [record for record in found if record is not None]


def of_spec(spec: Spec, path: Path) -> list[Record]:
    """The servers started from that file, or with that spec's name and port."""
    here = str(path.resolve())
    return [r for r in everyone() if r.spec == here or (r.name, _port(r)) == (spec.name, spec.serving.http_port)]


def lives(pid: int | None, born: str | None) -> bool:
    return pid is not None and process.alive(pid) and birth(pid) == born


def birth(pid: int) -> str | None:
    """When a process started, in clock ticks since boot; None when it is gone or the system does not say."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _port(record: Record) -> int:
    return int(record.http.rpartition(":")[2])


def _read(file: Path) -> Record | None:
    try:
        return Record(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):
        return None
