"""What the command's streams, output files, names and URLs may be. Devices are nodes or pipes of the test's own."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests import toys
from trtspec.cli import main
from trtspec.cli.answers import check_out, writer
from trtspec.errors import UserError

SPEC = 'name: toy\nruntime: reference\ntarget: {model: ./target}\nreference: {compile: "off"}\n'


def _trtspec(*argv: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "trtspec", *argv]
    return subprocess.run(command, capture_output=True, timeout=120, check=False, **options)


def _shell(line: str) -> subprocess.CompletedProcess[bytes]:
    """``line`` is a shell's, with $T for the command."""
    script = line.replace("$T", f"'{sys.executable}' -m trtspec")
    return subprocess.run(["sh", "-c", script], capture_output=True, timeout=120, check=False)


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    toys.random_checkpoint(tmp_path / "target")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "toy.yaml"
    path.write_text(SPEC)
    return path


def _error(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert main.run([*argv, "--json"]) == 1
    error: dict[str, Any] = json.loads(capsys.readouterr().out)["error"]
    return error


# --- where run writes


def _write(out: Path) -> None:
    check_out(out)
    with writer(out) as write:
        write("new\n")


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    target, link = tmp_path / "deep" / "target", tmp_path / "link"
    target.write_text("old\n")
    target.chmod(0o640)
    link.symlink_to("deep/target")
    _write(link)
    assert link.is_symlink() and target.read_text() == "new\n"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    target.unlink()
    _write(link)
    assert link.is_symlink() and target.read_text() == "new\n", "a link to what is not there yet"
    assert [path.name for path in tmp_path.rglob("*partial*")] == []


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    _write(pipe)
    reader.join(20)
    assert read == ["new\n"] and stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("minor", [3, 7])  # of the memory device: null and full
def test_a_device_is_written_to_and_stays(tmp_path: Path, minor: int) -> None:
    node = tmp_path / "node"
    try:
        os.mknod(node, 0o600 | stat.S_IFCHR, os.makedev(1, minor))
        node.open("w").close()
    except OSError:
        pytest.skip("no device can be made here")
    if minor == 3:
        _write(node)
    else:
        with pytest.raises(UserError, match="node cannot be written: No space left"):
            _write(node)
    assert stat.S_ISCHR(node.stat().st_mode)


def test_names_as_long_as_they_may_be_and_longer(tmp_path: Path) -> None:
    _write(tmp_path / ("o" * 255))
    assert (tmp_path / ("o" * 255)).read_text() == "new\n"
    for name in ("o" * 256, "loop"):
        if name == "loop":
            (tmp_path / name).symlink_to(name)
        with pytest.raises(UserError, match="cannot be written"):
            check_out(tmp_path / name)


# --- the standard streams


@pytest.mark.parametrize("line", ["$T check toy.yaml --json >&-", "$T schema >&-", "$T plan toy.yaml >&-"])
def test_a_closed_stdout_is_said(spec: Path, line: str) -> None:
    done = _shell(line)
    assert (done.returncode, b"standard output cannot be written" in done.stderr) == (1, True), done.stderr
    assert b"Traceback" not in done.stderr


def test_a_closed_stdin_and_a_closed_stderr(spec: Path) -> None:
    done = _shell("$T run toy.yaml --requests - -o out --json <&-")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (1, "requests_file")
    assert _shell("$T check absent.yaml 2>&-").returncode == 1


@pytest.mark.parametrize("verb", ["schema", "check toy.yaml --json", "doctor --json", "check absent.yaml --json"])
def test_a_full_device_and_a_reader_that_left(spec: Path, tmp_path: Path, verb: str) -> None:
    node = tmp_path / "full"
    try:
        os.mknod(node, 0o600 | stat.S_IFCHR, os.makedev(1, 7))
        node.open("w").close()
    except OSError:
        pytest.skip("no device can be made here")
    done = _shell(f"$T {verb} > full")
    assert done.returncode == 1 and b"Traceback" not in done.stderr and b"Exception" not in done.stderr, done.stderr
    assert stat.S_ISCHR(node.stat().st_mode)
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        command = [sys.executable, "-m", "trtspec", *verb.split()]
        left = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, timeout=120, check=False)
    assert left.returncode == 1 and b"Traceback" not in left.stderr and b"Exception" not in left.stderr, left.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_one_document(spec: Path, tmp_path: Path, number: int) -> None:
    os.mkfifo(tmp_path / "requests")
    argv = [sys.executable, "-m", "trtspec", "run", str(spec), "--requests", "requests", "-o", "out", "--json"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with process, (tmp_path / "requests").open("wb"):  # opened when the command reads its requests
        time.sleep(0.2)
        process.send_signal(number)
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    error = json.loads(out)["error"]
    assert list(error) == ["code", "where", "line", "column", "message", "hint"]
    assert error["code"] == "interrupted" and b"interrupted" in errors


@pytest.mark.parametrize("flag", [["--json"], []])
def test_a_name_that_is_no_utf8_is_printed_escaped(spec: Path, flag: list[str]) -> None:
    done = _trtspec("check", os.fsdecode(b"\xff.yaml"), *flag)
    assert done.returncode == 1 and b"Traceback" not in done.stderr
    text = done.stdout.decode("utf-8")
    assert not flag or "\udcff.yaml" in json.loads(text)["findings"][0]["message"]


# --- paths and URLs


@pytest.mark.parametrize("model", ["./loop", f"./{'m' * 300}", f"./{'m/' * 3000}x"])
@pytest.mark.parametrize("verb", ["build", "plan"])
def test_a_model_that_can_be_at_no_such_path(
    spec: Path, capsys: pytest.CaptureFixture[str], verb: str, model: str
) -> None:
    (spec.parent / "loop").symlink_to("loop")
    spec.write_text(SPEC.replace("./target", model))
    error = _error(capsys, verb, str(spec))
    assert (error["code"], error["where"], error["line"]) == ("source", "target.model", 3)
    with pytest.raises(SystemExit):
        main.run(["check", str(spec), "--json"])
    (finding,) = [one for one in json.loads(capsys.readouterr().out)["findings"] if one["severity"] == "error"]
    assert finding["where"] == "target.model"


@pytest.mark.parametrize("option", ["--engines", "--model-repo"])
@pytest.mark.parametrize("name", ["loop", "n" * 300])
def test_folders_that_cannot_be(spec: Path, capsys: pytest.CaptureFixture[str], option: str, name: str) -> None:
    (spec.parent / "loop").symlink_to("loop")
    error = _error(capsys, "build", str(spec), option, name)
    assert error["code"] != "internal" and name in (error["where"] or "")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:99999", "http://[::1", "http://a b", "grpc://a:b", "grpc://[::1", "http://é", "ftp://x"]
)
def test_what_is_no_url(capsys: pytest.CaptureFixture[str], url: str) -> None:
    error = _error(capsys, "generate", "hi", "--url", url)
    assert error["code"] == "bad_url" and "://host:port" in error["hint"]


def test_a_file_of_a_model_is_named_beside_the_place_in_the_spec(
    spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (spec.parent / "target" / "config.json").unlink()
    error = _error(capsys, "plan", str(spec))
    assert (error["where"], error["line"]) == ("target.model", 3)
    assert f"config.json is missing in {spec.parent / 'target'}" in error["message"]


def test_the_nearest_command_is_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["stats"]) == 2
    assert "Did you mean 'status'?" in capsys.readouterr().err


def test_a_layer_count_that_no_model_has(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = spec.parent / "target" / "config.json"
    toys.write_json(file, {**json.loads(file.read_text()), "num_hidden_layers": 10**9})
    error = _error(capsys, "plan", str(spec))
    assert error["code"] == "checkpoint" and "num_hidden_layers is 1000000000" in error["message"]
