"""``trtspec run`` as the user meets it: in a process of its own, on a toy model."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests import toys

LETTERS = {letter: number for number, letter in enumerate(toys.LETTERS, 2)}


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """A bigram model that goes round the alphabet: a, b, ... z, a."""
    letters = [LETTERS[letter] for letter in "abcdefghijklmnopqrstuvwxyz"]
    following = dict(zip(letters, letters[1:] + letters[:1], strict=True))
    toys.bigram_checkpoint(tmp_path / "toy", toys.chain_table(64, following), max_positions=8192)
    file = tmp_path / "toy.yaml"
    file.write_text(
        "name: toy\nruntime: reference\ntarget: {model: ./toy}\nspeculation: {method: ngram}\n"
        'reference: {threads: 1, compile: "off"}\n'
    )
    return file


def argv(spec: Path, requests: str, *more: str) -> list[str]:
    engines = str(spec.parent / "engines")
    return [sys.executable, "-m", "trtspec", "run", str(spec), "--requests", requests, "--engines", engines, *more]


def run(spec: Path, lines: str | bytes, *more: str) -> subprocess.CompletedProcess[bytes]:
    data = lines if isinstance(lines, bytes) else lines.encode()
    return subprocess.run(argv(spec, "-", *more), input=data, capture_output=True, timeout=120, check=False)


def documents(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def test_answers_come_in_order_and_a_bad_line_answers_itself(spec: Path) -> None:
    lines = [
        {"prompt": "abc", "max_tokens": 5},
        {"prompt": "abc", "top_p": 1.5},
        {"prompt": "x", "max_tokens": 60, "id": "mine", "speculation": "off"},
        {"prompt": "x", "max_tokens": 60},
        {"prompt": "abc", "max_tokens": 9, "stop": "gh"},
    ]
    done = run(spec, "\n".join(map(json.dumps, lines)))
    assert done.returncode == 1, done.stderr.decode()
    answers = documents(done.stdout)
    assert [answer["id"] for answer in answers] == ["0", "1", "mine", "3", "4"]
    assert answers[0]["text"] == "defgh"
    assert answers[0]["finish_reason"] == "length"
    assert answers[1] == {
        "id": "1",
        "error": {"field": "top_p", "message": "top_p must be above 0 and at most 1, not 1.5"},
    }
    assert answers[2]["token_ids"] == answers[3]["token_ids"]
    assert answers[2]["speculation"]["enabled"] is False
    assert answers[3]["speculation"]["accepted"] > 0
    assert (answers[4]["text"], answers[4]["finish_reason"]) == ("def", "stop")
    assert answers[4]["usage"] == {"prompt_tokens": 3, "completion_tokens": 5}


def test_the_output_file_is_complete_and_the_summary_is_one_document(spec: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    done = run(spec, '{"prompt": "a", "max_tokens": 3}\n{"prompt": "b", "max_tokens": 4}', "-o", str(out), "--json")
    assert done.returncode == 0, done.stderr.decode()
    summary = json.loads(done.stdout)
    assert summary.pop("seconds") > 0
    assert summary == {"requests": 2, "failed": 0, "tokens": 7}
    assert [answer["text"] for answer in documents(out.read_bytes())] == ["bcd", "cdef"]
    assert [file.name for file in tmp_path.iterdir() if "partial" in file.name] == []


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (b'{"prompt": "a"}\nnonsense\n', "line 2 of - is not a JSON object"),
        (b'{"prompt": "\xff"}', "byte 13 is not UTF-8"),
    ],
)
def test_what_is_no_json_ends_everything_before_work(spec: Path, tmp_path: Path, lines: bytes, words: str) -> None:
    out = tmp_path / "out.jsonl"
    done = run(spec, lines, "-o", str(out), "--json")
    assert done.returncode == 1
    assert words in json.loads(done.stdout)["error"]["message"]
    assert not out.exists()
    assert not (tmp_path / "engines").exists()


def test_an_empty_file_is_answered_by_an_empty_file(spec: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert run(spec, "", "-o", str(out)).returncode == 0
    assert out.read_bytes() == b""
    assert not (tmp_path / "engines").exists()


def test_a_missing_file_and_a_place_that_cannot_be_written(spec: Path, tmp_path: Path) -> None:
    done = subprocess.run(argv(spec, "absent.jsonl"), capture_output=True, timeout=120, check=False)
    assert (done.returncode, b"absent.jsonl cannot be read" in done.stderr) == (1, True)
    done = run(spec, '{"prompt": "a"}', "-o", str(tmp_path / "no" / "out.jsonl"))
    assert (done.returncode, b"cannot be written" in done.stderr) == (1, True)
    assert run(spec, '{"prompt": "a"}', "-o", str(tmp_path)).returncode == 1


def test_an_interrupt_leaves_nothing_half_written(spec: Path, tmp_path: Path) -> None:
    requests, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    line = json.dumps({"prompt": "a", "max_tokens": 8000, "ignore_eos": True, "speculation": "off"})
    requests.write_text('{"prompt": "a", "max_tokens": 1}\n' + (line + "\n") * 8)
    out.write_text("what was here before\n")
    process = subprocess.Popen(
        argv(spec, str(requests), "-o", str(out)), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        wait_for_answer(process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, errors.decode()
    assert out.read_text() == "what was here before\n"
    assert [file.name for file in tmp_path.iterdir() if "partial" in file.name] == []


def wait_for_answer(process: subprocess.Popen[bytes]) -> None:
    """Until the command says that a request is done: the engine is open and at work on the others."""
    assert process.stderr is not None
    deadline = time.monotonic() + 60
    for line in process.stderr:
        if b" done, " in line:
            return
        assert time.monotonic() < deadline
    raise AssertionError(f"the command ended early with exit code {process.wait()}")
