"""Starts a tritonserver, waits until a token comes out of it, watches it, and leaves nothing of it behind."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from trtspec import process
from trtspec.errors import ServeError, UserError
from trtspec.repository.interface import spec_of
from trtspec.serving import lock as locks
from trtspec.serving import record as records
from trtspec.serving import shared_memory
from trtspec.serving.command import server_argv, server_env
from trtspec.serving.endpoints import Endpoints
from trtspec.serving.http_client import HttpServer
from trtspec.serving.locate import BACKENDS, install
from trtspec.serving.lock import Lock
from trtspec.serving.record import Record
from trtspec.spec.model import Spec

READY_SECONDS = 900.0  # loading a large model takes minutes
POLL_SECONDS = 0.2
STOP_SECONDS = 12.0  # between the request to end and SIGKILL; with what follows under 20 s
MODELS = "models"  # in the server's folder
SUPERVISOR_SECONDS = 4.0  # more, for a supervisor to see to it


@dataclass(frozen=True)
class Launch:
    """What is to be served, from where, under which name."""

    name: str
    spec: Path
    model_repo: Path
    at: Endpoints
    models: int  # model processes that must be there, and stay

    def require_free(self, spec: Spec) -> None:
        """Raises ServeError where a server of ours runs there already, or anything else listens."""
        deadline = time.monotonic() + STOP_SECONDS + SUPERVISOR_SECONDS
        while (before := records.load(self.at.http)) is not None and before.supervised:
            if not before.stopping or time.monotonic() > deadline:
                raise self._taken(before)
            time.sleep(POLL_SECONDS)
        if before is not None:
            end(before)  # what a killed supervisor left
        self.at.require_free(spec)

    def lock(self) -> Lock:
        """Held as long as this is served. Raises ServeError where another serves at the same address."""
        taken = locks.take(self.folder)
        if taken is None:
            raise self._taken(records.load(self.at.http))
        return taken

    def _taken(self, by: Record | None) -> ServeError:
        name, who = (self.name, "") if by is None else (by.name, f" (process {by.pid})")
        stopping = by is not None and by.stopping
        return ServeError(
            f"{name} at {self.at.http} is stopping{who}"
            if stopping
            else f"{name} is already served at {self.at.http}{who}",
            code="stopping" if stopping else "already_served",
            where=self.at.http,
            hint="try again when it has ended" if stopping else f"trtspec stop --url {self.at.http}",
        )

    @property
    def folder(self) -> Path:
        return records.folder_of(self.at.http)

    @property
    def log(self) -> Path:
        return self.folder / records.SERVER_LOG


class Server:
    """A tritonserver and its record. Use as ``with start(launch) as server``: the end stops everything."""

    def __init__(self, launch: Launch, running: process.Process, record: Record, lock: Lock) -> None:
        self._launch = launch
        self._process = running
        self._lock = lock
        self._models: dict[int, str] = {}
        self._grace = STOP_SECONDS
        self._stopped = False
        self.record = record

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_ready(self, stop: threading.Event, timeout: float = READY_SECONDS) -> bool:
        """True once a token has come out; False when ``stop`` was set before. Raises ServeError with the log's end."""
        http = HttpServer(self.record.http)
        deadline = time.monotonic() + timeout
        while not stop.wait(POLL_SECONDS):
            self._require_running()
            if http.ready() and self._token(http):
                self._watch_models()
                self._update(ready=True)
                return True
            if time.monotonic() > deadline:
                raise self._failure(f"{self._launch.name} was not ready within {timeout:.0f} s")
        return False

    def supervise(self, stop: threading.Event) -> None:
        """Returns when ``stop`` is set. Raises ServeError when the server or one of its models dies."""
        while not stop.wait(POLL_SECONDS):
            self._require_running()
            for pid, model in self._models.items():
                if not process.alive(pid):
                    self._grace = 0  # who waits for that model gets no answer from Triton: better none at once
                    self.stop()
                    raise self._failure(f"the process of model {model} ({pid}) has died")

    def stop(self) -> None:
        """May be called again."""
        if self._stopped:
            return
        self._stopped = True
        self._update(ready=False, stopping=True)
        self._process.terminate_tree(self._grace)
        _clean(self.record)
        self._lock.release()

    def _watch_models(self) -> None:
        self._models = shared_memory.processes_of(self.record.shared_memory)
        if len(self._models) != self._launch.models:
            found = ", ".join(self._models.values()) or "none"
            raise self._failure(
                f"{self._launch.models} model processes are wanted, there are {len(self._models)} ({found})"
            )

    def _token(self, http: HttpServer) -> bool:
        try:
            http.command(self._launch.name, "probe")
        except ServeError as error:
            if error.code == "no_server":
                return False
            raise self._failure(f"{self._launch.name} came up, and gives no token: {error.message}") from error
        return True

    def _require_running(self) -> None:
        code = self._process.poll()
        if code is not None:
            raise self._failure(f"tritonserver has ended (exit code {code})")

    def _failure(self, what: str) -> ServeError:
        log = self._launch.log
        tail = "\n".join(telling(self._process.tail(200)))
        return ServeError(
            f"{what}; the last of its log:\n{tail}", code="server_failed", where=str(log), hint=f"the log is {log}"
        )

    def _update(self, *, ready: bool, stopping: bool = False) -> None:
        self.record = dataclasses.replace(self.record, ready=ready, stopping=stopping)
        records.save(self.record)


def start(launch: Launch) -> Server:
    """Raises ServeError where this machine has no server to start, or the address is taken."""
    lock = launch.lock()
    try:
        return _start(launch, lock)
    except BaseException:
        lock.release()
        raise


def _start(launch: Launch, lock: Lock) -> Server:
    installation = install(launch.folder)
    models = _own_models(launch)
    prefix = shared_memory.new_prefix()
    launch.log.unlink(missing_ok=True)
    record = Record(
        pid=os.getpid(),
        born=records.birth(os.getpid()) or "",
        name=launch.name,
        spec=str(launch.spec.resolve()),
        http=launch.at.http,
        grpc=launch.at.grpc,
        metrics=launch.at.metrics,
        log=str(launch.log),
        shared_memory=prefix,
    )
    records.save(record)
    try:
        running = process.start(
            server_argv(installation, models, launch.at, prefix),
            env=server_env(installation, os.environ),
            log=launch.log,
        )
    except UserError:
        records.forget(record.http)
        raise
    record = dataclasses.replace(record, server_pid=running.pid, server_born=records.birth(running.pid))
    return Server(launch, running, record, lock)


def _own_models(launch: Launch) -> Path:
    """A copy of the spec's models, a few small files: others in the repository are not loaded, and a later build does
    not change what is served."""
    folder = launch.folder / MODELS
    shutil.rmtree(folder, ignore_errors=True)
    for config in launch.model_repo.glob("*/config.pbtxt"):
        if spec_of(config.parent.name) == launch.name:
            shutil.copytree(config.parent, folder / config.parent.name)
    return folder


def end(record: Record, timeout: float = STOP_SECONDS) -> None:
    """Ends a server by its record, whoever supervises it; returns when nothing of it is left."""
    if record.supervised:
        _end_supervisor(record, timeout + SUPERVISOR_SECONDS)
    if record.server_pid is not None and records.lives(record.server_pid, record.server_born):
        process.end_tree(record.server_pid, timeout)
    for pid in shared_memory.processes_of(record.shared_memory):
        process.end_tree(pid, 0)
    with locks.held(records.folder_of(record.http)) as ours:
        if ours:
            _clean(record)
        else:  # somebody serves there again
            shared_memory.remove_regions(record.shared_memory)


def _clean(record: Record) -> None:
    """What a server leaves on the disk, but for its logs."""
    shared_memory.remove_regions(record.shared_memory)
    for name in (BACKENDS, MODELS):
        shutil.rmtree(records.folder_of(record.http) / name, ignore_errors=True)
    records.forget(record.http)


def _end_supervisor(record: Record, timeout: float) -> None:
    """It stops its server itself; killed, the kernel kills its server with it."""
    deadline = time.monotonic() + timeout
    with contextlib.suppress(ProcessLookupError):
        os.kill(record.pid, signal.SIGTERM)
        while record.supervised and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        if record.supervised:
            os.kill(record.pid, signal.SIGKILL)


def telling(lines: list[str], most: int = 12) -> list[str]:
    """The lines of a server's log that say what went wrong, else the last ones."""
    words = ("error", "failed", "unable", "cannot", "exception", "traceback")
    told = [line for line in lines if any(word in line.lower() for word in words)]
    return (told or lines)[-most:]
