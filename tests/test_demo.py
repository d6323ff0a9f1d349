"""What the demo computes; that it runs is what scripts/demo itself shows."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from dataclasses import replace
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


def pair(demo: ModuleType, route: str, later: int, plain: float, fast: float, **counts: int) -> Any:
    """Two answers that came in so many seconds."""
    return answer(demo, route, later, plain), answer(demo, route, later, fast, **counts)


def test_a_row_sums_and_then_divides(demo: ModuleType) -> None:
    pairs = [
        pair(demo, "code", 10, 1.0, 0.5, drafted=4, accepted=4, emitted=10, steps=2),
        pair(demo, "chat", 9, 1.0, 9.0),
        pair(demo, "code", 30, 3.0, 1.5, drafted=36, accepted=6, emitted=30, steps=18),
    ]
    row = demo.row_of("code", [pairs, pairs, pairs])
    assert (row.prompts, row.tokens, row.max_draft_len) == (2, 126, 4)
    assert (row.acceptance_rate, row.acceptance_length) == (0.25, 2.0)
    assert (row.plain_tokens_per_s, row.speculative_tokens_per_s, row.speed_up) == (10.0, 20.0, 2.0)
    assert (row.speed_ups, row.word) == ([2.0, 2.0, 2.0], "pays")
    slow = demo.row_of("chat", [pairs])
    assert (slow.word, slow.acceptance_rate) == ("does not pay", None)


def test_a_round_has_a_speed_up_of_its_own(demo: ModuleType) -> None:
    rounds = [[pair(demo, "chat", 10, plain, 1.0)] for plain in (1.0, 2.0, 3.0)]
    row = demo.row_of("chat", rounds)
    assert (row.speed_ups, row.speed_up) == ([1.0, 2.0, 3.0], 2.0)


@pytest.mark.parametrize(
    ("speed_ups", "word"),
    [
        ([1.06, 1.3, 1.2], "pays"),
        ([1.05, 1.3, 1.2], "about even"),
        ([0.9, 1.3, 1.2], "about even"),
        ([0.94, 0.9, 0.96], "about even"),
        ([0.95, 0.5, 0.6], "about even"),
        ([0.94, 0.9, 0.6], "does not pay"),
    ],
)
def test_a_verdict_needs_every_round(demo: ModuleType, speed_ups: list[float], word: str) -> None:
    assert demo.word_of(speed_ups) == word


def test_each_round_asks_every_prompt_both_ways_in_changing_order(demo: ModuleType) -> None:
    asked: list[tuple[str, str]] = []

    def ask(prompt: dict[str, Any], speculation: str) -> Any:
        asked.append((prompt["id"], speculation))
        return answer(demo, prompt["route"], 9, 1.0)

    rounds = demo.measure(ask)
    warm, *rest = asked
    assert warm[1] == "on"
    assert [len(pairs) for pairs in rounds] == [12] * demo.ROUNDS
    assert set(Counter(rest).values()) == {demo.ROUNDS}
    firsts = [rest[place] for place in range(0, len(rest), 2)]
    assert Counter(speculation for _, speculation in firsts) == {"off": 18, "on": 18}
    for one, other in zip(firsts, firsts[12:], strict=False):
        assert one[0] == other[0] and one[1] != other[1]


def test_the_report_says_where_speculation_does_not_pay(demo: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    rounds = [[pair(demo, "chat", 9, 1.0, slow, drafted=4, accepted=1, emitted=9, steps=8)] for slow in (2.0, 2.5)]
    rows = [demo.row_of("chat", rounds)]
    demo.report(rows, [], 2, False)
    out = capsys.readouterr().out
    assert "chat: speculation does not pay here (0.40x to 0.50x in 2 rounds)" in out
    assert "set `speculation: never` on route chat" in out
    assert "identical with and without speculation: 2 of 2" in out
    demo.report(rows, [{"id": "p", "position": 3, "verdict": "unexplained: x", "explained": False}], 2, True)
    document = json.loads(capsys.readouterr().out)
    assert (document["compared"], document["identical"], document["routes"][0]["route"]) == (2, 1, "chat")


def test_noise_advises_nothing(demo: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    rounds = [[pair(demo, "chat", 9, 1.0, slow, drafted=4, accepted=1, emitted=9, steps=8)] for slow in (1.3, 0.98)]
    demo.report([demo.row_of("chat", rounds)], [], 2, False)
    out = capsys.readouterr().out
    assert "chat: speculation is about even on this machine (0.77x to 1.02x in 2 rounds)" in out
    assert "never" not in out


def test_a_pair_that_differs_in_any_round_is_explained(demo: ModuleType, tmp_path: Path) -> None:
    same = [pair(demo, "chat", 9, 1.0, 1.0)]
    assert demo.explain_all([same, same], tmp_path) == []
    plain, fast = pair(demo, "chat", 9, 1.0, 1.0)
    with pytest.raises(SystemExit, match="the same ids gave different texts: p"):
        demo.explain_all([same, [(plain, replace(fast, text="other"))]], tmp_path)
    with pytest.raises(FileNotFoundError):  # it goes to open the model
        demo.explain_all([same, [(plain, replace(fast, token_ids=[6]))]], tmp_path / "absent")


@pytest.mark.parametrize("http", ["http://127.0.0.1:81", "127.0.0.1:81", 81])
def test_however_the_server_says_where_it_listens(demo: ModuleType, http: str | int) -> None:
    assert demo.http_base(http) == "http://127.0.0.1:81"


def test_free_ports_differ(demo: ModuleType) -> None:
    assert len(set(demo.free_ports(3))) == 3
