from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from trtspec.errors import RequestError
from trtspec.front.batch import Batch, Tally
from trtspec.front.front import Front, FrontSettings
from trtspec.front.jsonl import read_lines
from trtspec.runtime.types import Capabilities, EngineRequest, Step


@dataclass
class EchoEngine:
    """Answers each request with its own prompt's ids, the latest request first, from another thread."""

    expected: int
    breaks_on: int | None = None
    refuses: int | None = None
    waiting: list[tuple[EngineRequest, Callable[[Step], None]]] = field(default_factory=list)
    most_in_flight: int = 0

    def submit(self, request: EngineRequest, on_step: Callable[[Step], None]) -> None:
        if request.prompt_ids[0] == self.refuses:
            raise RequestError("prompt", "this engine cannot hold it")
        self.waiting.append((request, on_step))
        self.most_in_flight = max(self.most_in_flight, len(self.waiting))
        if len(self.waiting) == self.expected:
            threading.Thread(target=self._answer).start()

    def _answer(self) -> None:
        for request, on_step in reversed(self.waiting):
            if request.prompt_ids[0] == self.breaks_on:
                on_step(Step(request.id, (), error="out of memory"))
                continue
            for token in request.prompt_ids:
                on_step(Step(request.id, (token,)))
            on_step(Step(request.id, (1,), finish="stop"))


def batch(tokenizer: Any, engine: EchoEngine, tally: Tally) -> Batch:
    settings = FrontSettings("toy", "reference", "none", 0, 64, 63, 8)
    door = Front(settings, tokenizer, Capabilities("none", 0, "rejection", 64, 63, 8, tokenizer.vocab_size))
    return Batch(door, tokenizer, engine, tally)


def run(tokenizer: Any, engine: EchoEngine, data: bytes) -> tuple[list[dict[str, Any]], Tally]:
    lines = read_lines(data, "f")
    tally = Tally(len(lines))
    return list(batch(tokenizer, engine, tally).run(lines)), tally


@pytest.fixture
def toy(toy_tokenizers: dict[str, Any]) -> Any:
    return toy_tokenizers["byte_level"]


def test_all_requests_are_in_flight_and_answers_come_in_order(toy: Any) -> None:
    engine = EchoEngine(expected=3)
    data = b'{"prompt": "hello"}\n{"prompt": "the end"}\n{"prompt": "world"}\n'
    documents, tally = run(toy, engine, data)
    assert [(document["id"], document["text"]) for document in documents] == [
        ("0", "hello"),
        ("1", "the end"),
        ("2", "world"),
    ]
    assert engine.most_in_flight == 3
    assert (tally.done, tally.failed) == (3, 0)
    assert tally.tokens == sum(document["usage"]["completion_tokens"] for document in documents)


def test_a_bad_line_answers_itself_and_the_others_run(toy: Any) -> None:
    data = b'{"prompt": "a"}\n{"prompt": "b", "top_k": "x"}\n{"input_ids": [99999]}\n{"prompt": "d"}'
    documents, tally = run(toy, EchoEngine(expected=2), data)
    assert [document.get("error", {}).get("field") for document in documents] == [None, "top_k", "input_ids", None]
    assert [document["id"] for document in documents] == ["0", "1", "2", "3"]
    assert (tally.done, tally.failed, tally.broken) == (4, 2, None)


def test_what_the_engine_refuses_is_that_lines_error(toy: Any) -> None:
    documents, tally = run(toy, EchoEngine(expected=1, refuses=7), b'{"input_ids": [7]}\n{"input_ids": [8]}')
    assert documents[0]["error"] == {"field": "prompt", "message": "this engine cannot hold it"}
    assert documents[1]["token_ids"] == [8, 1]
    assert tally.failed == 1


def test_an_engine_that_breaks_is_reported_and_the_others_are_answered(toy: Any) -> None:
    documents, tally = run(toy, EchoEngine(expected=2, breaks_on=7), b'{"input_ids": [7]}\n{"input_ids": [8]}')
    assert documents[0]["error"]["message"] == "out of memory"
    assert documents[1]["token_ids"] == [8, 1]
    assert tally.broken == "out of memory"


def test_progress_is_told_after_every_answer(toy: Any) -> None:
    told: list[int] = []
    lines = read_lines(b'{"prompt": "a"}\n{"prompt": ""}\n', "f")
    tally = Tally(2, on_change=lambda tally: told.append(tally.done))
    list(batch(toy, EchoEngine(expected=1), tally).run(lines))
    assert told == [1, 2]
