"""Processes: output, failures, signals, and that nothing outlives who started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from trtspec import process
from trtspec.errors import UserError

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def _until(condition: object, seconds: float = 20.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


def _number(path: Path) -> int:
    _until(lambda: path.exists() and path.read_text().strip())
    return int(path.read_text())


def test_output_and_exit_code(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "a.log"
    done = process.run(["sh", "-c", "echo out; echo err >&2; exit 3"], log=log)
    assert (done.exit_code, done.ok) == (3, False)
    assert done.tail() == ["$ sh -c 'echo out; echo err >&2; exit 3'", "out", "err"]
    assert done.tail(1) == ["err"]
    assert done.seconds > 0


def test_environment_is_added_and_folder_is_used(tmp_path: Path) -> None:
    done = process.run(
        ["sh", "-c", "echo $GREETING $PWD $HOME"], cwd=tmp_path, env={"GREETING": "hi"}, log=tmp_path / "l"
    )
    assert done.tail(1) == [f"hi {tmp_path} {os.environ['HOME']}"]


def test_a_signal_is_a_negative_exit_code(tmp_path: Path) -> None:
    done = process.run(["sh", "-c", "kill -TERM $$"], log=tmp_path / "log")
    assert done.exit_code == -signal.SIGTERM


@pytest.mark.parametrize("name", ["no-such-program-here", "./missing"])
def test_a_missing_executable_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError) as caught:
        process.run([name], cwd=tmp_path, log=tmp_path / "log")
    assert name in caught.value.message
    assert caught.value.code == "missing_executable"
    assert not (tmp_path / "log").exists()


def test_a_file_that_is_not_executable(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    with pytest.raises(UserError, match="not an executable file"):
        process.run(["./tool"], cwd=tmp_path, log=tmp_path / "log")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        process.run(["sh"], cwd=tmp_path / "gone", log=tmp_path / "log")


def test_last_lines_of_a_long_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(10_000)))
    assert process.last_lines(log, 2) == ["line 9998", "line 9999"]
    assert process.last_lines(tmp_path / "none") == []


def test_the_time_limit_ends_it(tmp_path: Path) -> None:
    done = process.run(["sleep", "100"], log=tmp_path / "log", timeout=0.2)
    assert done.timed_out and not done.ok


def test_what_a_command_leaves_behind_is_ended(tmp_path: Path) -> None:
    process.run(["sh", "-c", f"sleep 100 & echo $! > {tmp_path}/pid"], log=tmp_path / "log")
    left = _number(tmp_path / "pid")
    _until(lambda: not process.alive(left))


@linux
def test_terminate_tree_reaches_what_left_its_session(tmp_path: Path) -> None:
    script = f"setsid sh -c 'trap \"\" TERM; echo $$ > {tmp_path}/deep; while :; do sleep 1; done' & sleep 100"
    server = process.start(["sh", "-c", script], log=tmp_path / "log")
    deep = _number(tmp_path / "deep")
    assert server.poll() is None
    server.terminate_tree(0.5)
    assert not process.alive(deep)
    assert not process.alive(server.pid)
    assert server.poll() is not None


@linux
def test_end_tree_of_a_process_that_outlived_its_starter(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from trtspec import process\n"
        "p = process.start(['sh', '-c', 'sleep 100 & sleep 100'], log=Path(sys.argv[1]), die_with_parent=False)\n"
        "print(p.pid)"
    )
    out = subprocess.run([sys.executable, "-c", code, tmp_path / "log"], capture_output=True, text=True, check=True)
    pid = int(out.stdout)
    assert process.alive(pid)
    process.end_tree(pid, 5)
    assert not process.alive(pid)


@linux
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_group_dies_with_us(tmp_path: Path, number: int) -> None:
    code = (
        "import sys; from pathlib import Path; from trtspec import process\n"
        f"process.run(['sh', '-c', 'sh -c \"echo $$ > {tmp_path}/pid; sleep 100; true\" & sleep 100'],"
        " log=Path(sys.argv[1]))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, tmp_path / "log"], stderr=subprocess.DEVNULL)
    below = _number(tmp_path / "pid")
    parent.send_signal(number)
    parent.wait(30)
    _until(lambda: not process.alive(below))


def test_an_interrupt_reaches_the_command_and_then_us(tmp_path: Path) -> None:
    script = f"trap 'echo interrupted; exit 7' INT; echo > {tmp_path}/ready; while :; do sleep 0.05; done"

    def interrupt() -> None:
        _until((tmp_path / "ready").exists)
        os.kill(os.getpid(), signal.SIGINT)

    helper = threading.Thread(target=interrupt)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        process.run(["sh", "-c", script], log=tmp_path / "log")
    helper.join()
    assert process.last_lines(tmp_path / "log", 1) == ["interrupted"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
