"""The one place that starts processes. Each gets its own session, a log file, and dies with us."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from trtspec.errors import UserError

TREE = "TRTSPEC_PROCESS_TREE"  # in the environment of everything below a process of ours; finds what left its session
GRACE_SECONDS = 10.0  # between a forwarded interrupt and SIGKILL
_GUARD = Path(__file__).with_name("guard.py")


@dataclass(frozen=True)
class Completed:
    """``exit_code`` is negative when a signal ended the process; ``timed_out`` when we did, at its time limit."""

    argv: tuple[str, ...]
    exit_code: int
    seconds: float
    log: Path
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    def tail(self, lines: int = 20) -> list[str]:
        return last_lines(self.log, lines)


def run(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    log: Path,
    timeout: float | None = None,
) -> Completed:
    """Runs to the end; output goes to ``log``. ``env`` is added to our own environment.

    A non-zero exit is returned, not raised. SIGINT and SIGTERM are passed on to the whole group and then raised here as
    KeyboardInterrupt. Raises UserError when the executable is missing.
    """
    began = time.monotonic()
    process = start(argv, cwd=cwd, env=env, log=log)
    with _forwarding(process) as interrupted:
        timed_out = _wait(process, interrupted, None if timeout is None else began + timeout)
    process.kill_group()
    if interrupted:
        raise KeyboardInterrupt
    return Completed(process.argv, process.wait(), time.monotonic() - began, log, timed_out)


def start(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    log: Path,
    die_with_parent: bool = True,
) -> Process:
    """Starts a process that leads its own session; its output is appended to ``log``.

    ``die_with_parent`` (Linux): killed with its whole group when the calling *thread* ends, so start from one that
    lives as long as the process should. False for servers that outlive us.
    """
    full_env = {**os.environ, **(env or {}), TREE: uuid.uuid4().hex}
    command = [_executable(argv[0], cwd, full_env), *argv[1:]]
    if die_with_parent and sys.platform == "linux":
        command = [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), *command]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as sink:
        sink.write(f"$ {shlex.join(argv)}\n".encode())
        sink.flush()
        child = subprocess.Popen(
            command,
            cwd=cwd,
            env=full_env,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Process(tuple(argv), log, child, full_env[TREE])


class Process:
    """A running process and everything below it. ``pid`` leads the session."""

    def __init__(self, argv: tuple[str, ...], log: Path, child: subprocess.Popen[bytes], tree: str) -> None:
        self.argv = argv
        self.log = log
        self.pid = child.pid
        self.tree = tree
        self._child = child

    def poll(self) -> int | None:
        return self._child.poll()

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code. Raises TimeoutError."""
        try:
            return self._child.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"{self.argv[0]} still runs after {timeout} s") from error

    def send(self, number: int) -> None:
        """Signals the whole group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill_group(self) -> None:
        self.send(signal.SIGKILL)

    def tail(self, lines: int = 20) -> list[str]:
        return last_lines(self.log, lines)

    def terminate_tree(self, timeout: float) -> None:
        """SIGTERM to the group and all descendants, SIGKILL to what is left after ``timeout`` seconds."""
        _end(self.pid, self.tree, timeout, self._child.poll)
        self._child.wait()


def end_tree(pid: int, timeout: float) -> None:
    """As ``terminate_tree``, for a process that some other run of ours started and left running."""
    _end(pid, _environment(pid).get(TREE), timeout, lambda: None)


def alive(pid: int) -> bool:
    """False for a zombie: it runs nothing and holds nothing."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _stat(pid)[:1] != ["Z"]


def last_lines(log: Path, lines: int = 20) -> list[str]:
    """The end of a log, at most 16 KiB of it; empty when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 16384))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []


def _executable(name: str, cwd: Path | None, env: Mapping[str, str]) -> str:
    if cwd is not None and not cwd.is_dir():
        raise UserError(f"cannot run {name} in {cwd}: no such folder", code="missing_folder", where=str(cwd))
    path = str((cwd or Path.cwd()) / name) if os.sep in name else name
    found = shutil.which(path, path=env.get("PATH"))
    if found is None:
        raise UserError(
            f"{name} is not an executable {'file' if os.sep in name else 'on PATH'}",
            code="missing_executable",
            where=name,
            hint="install it, or run `trtspec doctor` to see what this machine lacks",
        )
    return found


@contextlib.contextmanager
def _forwarding(process: Process) -> Iterator[list[int]]:
    """Passes SIGINT and SIGTERM on to the process's group; yields the list of those seen (main thread only)."""
    seen: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        process.send(number if len(seen) == 1 else signal.SIGKILL)

    if threading.current_thread() is not threading.main_thread():
        yield seen
        return
    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(process: Process, interrupted: Sequence[int], deadline: float | None) -> bool:
    """Waits for the end; True when the deadline ended it."""
    kill_at: float | None = None
    while True:
        with contextlib.suppress(TimeoutError):
            process.wait(0.5)
            return False
        now = time.monotonic()
        if interrupted and kill_at is None:
            kill_at = now + GRACE_SECONDS
        if deadline is not None and now > deadline:
            process.terminate_tree(GRACE_SECONDS)
            return True
        if kill_at is not None and now > kill_at:
            process.kill_group()


def _end(pid: int, tree: str | None, timeout: float, reap: Callable[[], object]) -> None:
    if pid <= 1:
        raise ValueError(f"process {pid} is not one of ours")
    deadline = time.monotonic() + timeout
    _signal(_members(pid, tree), signal.SIGTERM)
    while left := _left(pid, tree, reap):
        late = time.monotonic() - deadline
        if late > 0:
            _signal(left, signal.SIGKILL)
        if late > GRACE_SECONDS:
            raise TimeoutError(f"processes {sorted(left)} do not end, even killed")
        time.sleep(0.02)


def _left(pid: int, tree: str | None, reap: Callable[[], object]) -> set[int]:
    reap()
    return {member for member in _members(pid, tree) if alive(member)}


def _signal(pids: set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _members(leader: int, tree: str | None) -> set[int]:
    """The leader's session and group, what carries its tree's name, and all that descends from these."""
    if sys.platform != "linux":
        return {leader} if alive(leader) else set()
    stats = {int(name): _stat(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    found = {
        pid
        for pid, fields in stats.items()
        if fields and (pid == leader or str(leader) in (fields[2], fields[3]) or (tree and _of_tree(pid, tree)))
    }
    while more := {pid for pid, fields in stats.items() if fields and int(fields[1]) in found} - found:
        found |= more
    return found - {os.getpid()}


def _of_tree(pid: int, tree: str) -> bool:
    return _environment(pid).get(TREE) == tree


def _stat(pid: int) -> list[str]:
    """State, parent, group, session ... of /proc/PID/stat; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _environment(pid: int) -> dict[str, str]:
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in raw.split(b"\0") if b"=" in entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
