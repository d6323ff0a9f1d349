"""What the demo computes; that it runs is what scripts/demo itself shows."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from trtspec.front.request import parse_request

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", SCRIPTS / "demo.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["demo"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def answer(demo: ModuleType, route: str, later: int, seconds: float, **counts: int) -> Any:
    speculation = {"max_draft_len": 4, "drafted": 0, "accepted": 0, "emitted": 0, "steps": 0, **counts}
    return demo.Answer("p", route, "text", [5] * (later + 1), "length", later, seconds, speculation)


def test_the_prompts_are_valid_and_cover_four_routes() -> None:
    prompts = [json.loads(line) for line in (SCRIPTS / "demo_prompts.jsonl").read_text().splitlines()]
    requests = [parse_request(prompt, "0") for prompt in prompts]
    assert len({request.id for request in requests}) == len(requests)
    counts = Counter(request.route for request in requests)
    assert set(counts) == {"code", "json", "chat", "creative"}
    assert min(counts.values()) >= 3


def test_a_row_sums_and_then_divides(demo: ModuleType) -> None:
    pairs = [
        (answer(demo, "code", 10, 1.0), answer(demo, "code", 10, 0.5, drafted=4, accepted=4, emitted=10, steps=2)),
        (answer(demo, "chat", 9, 1.0), answer(demo, "chat", 9, 9.0)),
        (answer(demo, "code", 30, 3.0), answer(demo, "code", 30, 1.5, drafted=36, accepted=6, emitted=30, steps=18)),
    ]
    row = demo.row_of("code", pairs)
    assert (row.prompts, row.tokens, row.max_draft_len) == (2, 42, 4)
    assert (row.acceptance_rate, row.acceptance_length) == (0.25, 2.0)
    assert (row.plain_tokens_per_s, row.speculative_tokens_per_s, row.speed_up) == (10.0, 20.0, 2.0)
    assert row.word == "pays"
    slow = demo.row_of("chat", pairs)
    assert (slow.word, slow.acceptance_rate) == ("does not pay", None)


def test_the_report_says_where_speculation_does_not_pay(demo: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [(answer(demo, "chat", 9, 1.0), answer(demo, "chat", 9, 2.0, drafted=4, accepted=1, emitted=9, steps=8))]
    rows = [demo.row_of("chat", pairs)]
    demo.report(rows, [], 1, False)
    out = capsys.readouterr().out
    assert "chat: speculation does not pay here" in out
    assert "set `speculation: never` on route chat" in out
    assert "identical with and without speculation: 1 of 1" in out
    demo.report(rows, [{"id": "p", "position": 3, "verdict": "unexplained: x", "explained": False}], 1, True)
    document = json.loads(capsys.readouterr().out)
    assert (document["identical"], document["routes"][0]["route"]) == (0, "chat")


@pytest.mark.parametrize("http", ["http://127.0.0.1:81", "127.0.0.1:81", 81])
def test_however_the_server_says_where_it_listens(demo: ModuleType, http: str | int) -> None:
    assert demo.http_base(http) == "http://127.0.0.1:81"


def test_free_ports_differ(demo: ModuleType) -> None:
    assert len(set(demo.free_ports(3))) == 3
