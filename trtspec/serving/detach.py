"""`serve --detach`: the same command once more, in a session of its own, waited for until it is ready."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from trtspec import process
from trtspec.errors import ServeError
from trtspec.serving import record as records
from trtspec.serving.launch import POLL_SECONDS, Launch
from trtspec.serving.record import Record


def start_supervisor(launch: Launch, engines: Path, stop: threading.Event) -> Record | None:
    """The record of a ready server; None when ``stop`` was set before. Raises what the supervisor ended with."""
    log = launch.folder / records.SUPERVISOR_LOG
    log.unlink(missing_ok=True)
    argv = [sys.executable, "-m", "trtspec", "serve", str(launch.spec.resolve()), "--in-place", "--json"]
    argv += ["--engines", str(engines.resolve()), "--model-repo", str(launch.model_repo)]
    child = process.start(argv, log=log, die_with_parent=False)
    while not stop.wait(POLL_SECONDS):
        record = records.load(launch.at.http)
        if record is not None and record.pid == child.pid and record.ready:
            return record
        if child.poll() is not None:
            raise _why(log, child.poll())
    os.kill(child.pid, signal.SIGTERM)
    child.wait()
    return None


def _why(log: Path, code: int | None) -> ServeError:
    """The error document the supervisor printed, as an error again."""
    lines = process.last_lines(log, 200)
    for line in reversed(lines):
        error = _error(line)
        if error is not None:
            return ServeError(error["message"], code=error["code"], where=error["where"], hint=error["hint"])
    tail = "\n".join(lines[-10:])
    return ServeError(
        f"the supervisor ended with exit code {code}; the last of its log:\n{tail}",
        code="server_failed",
        where=str(log),
        hint=f"the log is {log}",
    )


def _error(line: str) -> dict[str, Any] | None:
    try:
        error = json.loads(line)["error"]
    except (ValueError, KeyError, TypeError):
        return None
    return error if isinstance(error, dict) else None
