"""The error boundary: exit codes, one JSON document, people's text on stderr."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from trtspec import __version__
from trtspec.cli import main
from trtspec.errors import InternalError, SpecError


@click.group()
def commands() -> None:
    """Stands in for ours."""


@commands.command()
@click.option("--json", "as_json", is_flag=True)
@click.option("--count", type=int, default=1)
@click.argument("what")
def fail(what: str, as_json: bool, count: int) -> None:
    """Ends in the way it is told."""
    errors: dict[str, BaseException] = {
        "user": SpecError("bad value 3", code="wrong_value", where="a.b", line=2, column=5, hint="write 4"),
        "bug": ZeroDivisionError("division by zero"),
        "internal": InternalError("engine broke", where="/some/log"),
        "interrupt": KeyboardInterrupt(),
        "missing": ModuleNotFoundError("No module named 'torch'", name="torch"),
        "ours": ModuleNotFoundError("No module named 'trtspec.x'", name="trtspec.x"),
        "exit": SystemExit(1),
    }
    if what in errors:
        raise errors[what]
    click.echo(json.dumps({"what": what}))


def _run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main.run(argv, commands)
    out = capsys.readouterr()
    return code, out.out, out.err


def _error(out: str) -> dict[str, Any]:
    document = json.loads(out)
    assert list(document) == ["error"]
    assert list(document["error"]) == ["code", "where", "line", "column", "message", "hint"]
    error: dict[str, Any] = document["error"]
    return error


def test_good(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(capsys, "fail", "nothing") == (0, '{"what": "nothing"}\n', "")


def test_a_users_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _run(capsys, "fail", "user")
    assert (code, out) == (1, "")
    assert err == "error: a.b: line 2, column 5: bad value 3\n  write 4\n"


def test_a_users_mistake_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _run(capsys, "fail", "user", "--json")
    expected = {"code": "wrong_value", "where": "a.b", "line": 2, "column": 5, "message": "bad value 3"}
    assert code == 1 and _error(out) == {**expected, "hint": "write 4"}
    assert "bad value 3" in err


@pytest.mark.parametrize("argv", [["fail"], ["fail", "x", "--count", "many"], ["fail", "x", "--nope"], ["unknown"]])
def test_usage(capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    code, out, err = _run(capsys, *argv)
    assert (code, out) == (2, "")
    assert "Usage:" in err and "Error:" in err
    code, out, _ = _run(capsys, *argv, "--json")
    assert code == 2 and _error(out)["code"] == "usage"


def test_our_bug_names_a_log_with_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _run(capsys, "fail", "bug", "--json")
    error = _error(out)
    log = Path(error["where"])
    try:
        assert code == 3 and error["code"] == "internal"
        assert "ZeroDivisionError: division by zero" in error["message"]
        assert str(log) in err
        assert "Traceback" in log.read_text() and __version__ in log.read_text()
    finally:
        log.unlink()


def test_an_internal_error_that_names_its_own_log(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys, "fail", "internal", "--json")
    assert code == 3 and _error(out)["where"] == "/some/log"


def test_an_interrupt(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _run(capsys, "fail", "interrupt")
    assert (code, out) == (130, "") and "interrupted" in err


def test_a_missing_extra_says_what_to_install(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys, "fail", "missing", "--json")
    error = _error(out)
    assert code == 1 and error["where"] == "torch" and "trtspec[cpu]" in error["hint"]


def test_a_missing_module_of_ours_is_our_bug(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys, "fail", "ours", "--json")
    Path(_error(out)["where"]).unlink()
    assert code == 3


def test_an_exit_code_passes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main.run(["fail", "exit"], commands)
    assert caught.value.code == 1


def test_json_after_two_dashes_is_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys, "fail", "--", "--json")
    assert (code, json.loads(out)) == (0, {"what": "--json"})


def _trtspec(*argv: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "trtspec", *argv]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def test_help_and_version_of_the_real_command() -> None:
    with _trtspec("--help") as shown:
        out, err = shown.communicate()
    assert (shown.returncode, err) == (0, "")
    assert all(f"  {name} " in out for name in main.COMMANDS)
    with _trtspec("--version") as shown:
        assert __version__ in shown.communicate()[0]


@pytest.mark.parametrize("verb", ["measure", "bench", "report", "tune", "certify", "gate", "selftest"])
def test_verbs_that_are_not_built_do_not_exist(verb: str) -> None:
    assert main.run([verb]) == 2


@pytest.mark.parametrize("verb", list(main.COMMANDS))
def test_every_verb_has_help(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    assert main.run([verb, "--help"]) == 0
    assert "Usage: trtspec" in capsys.readouterr().out


def test_a_closed_pipe_is_quiet() -> None:
    with _trtspec("doctor", "--json") as writer:
        assert writer.stdout is not None and writer.stderr is not None
        writer.stdout.close()
        assert writer.stderr.read() == ""
        assert writer.wait(60) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_an_interrupt(tmp_path: Path, number: int) -> None:
    pipe = tmp_path / "spec.yaml"
    os.mkfifo(pipe)
    with _trtspec("check", str(pipe)) as waiting:
        sink = os.open(pipe, os.O_WRONLY)  # opens when the command reads
        waiting.send_signal(number)
        assert waiting.wait(60) == 130
        os.close(sink)
