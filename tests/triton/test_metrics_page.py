"""The metrics on Triton's own port: there from the start, and exact."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.request import urlopen

import pytest

from tests.serving import toy_server
from tests.serving.toy_server import DRAFT_LEN, Toy
from tests.triton.asking import post

SERIES = re.compile(r"^(trtspec_\w+)\{(.*)\} (\S+)$", re.M)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toy]:
    """A server that nobody has asked anything."""
    toy = toy_server.build(tmp_path_factory.mktemp("toy-metrics"))
    toy_server.serve(toy)
    yield toy
    toy_server.stop(toy)


def page(toy: Toy) -> dict[tuple[str, str], float]:
    """(name, labels) -> value."""
    with urlopen(toy.metrics) as response:
        text = response.read().decode()
    return {(name, labels): float(value) for name, labels, value in SERIES.findall(text)}


def of_route(found: dict[tuple[str, str], float], name: str, route: str) -> float:
    return sum(value for (n, labels), value in found.items() if n == name and f'route="{route}"' in labels)


def test_metrics_are_at_zero_before_the_first_request_and_add_up_after(fresh: Toy) -> None:
    before = page(fresh)
    names = {name for name, _ in before}
    assert names == {
        "trtspec_requests_total",
        "trtspec_steps_total",
        "trtspec_draft_tokens_total",
        "trtspec_judged_tokens_total",
        "trtspec_accepted_tokens_total",
        "trtspec_emitted_tokens_total",
        "trtspec_accepted_at_position_total",
        "trtspec_speculation_enabled",
        "trtspec_gate_decisions_total",
    }
    assert {value for (name, _), value in before.items() if name.endswith("_total")} == {0.0}
    assert of_route(before, "trtspec_speculation_enabled", "default") == 1
    assert of_route(before, "trtspec_speculation_enabled", "creative") == 0
    assert sum(name == "trtspec_accepted_at_position_total" for name, _ in before) == 3 * DRAFT_LEN

    with ThreadPoolExecutor(8) as pool:  # at once: increments from two threads must not meet
        asked = [
            {
                "text_input": "L",
                "max_tokens": 10 + number,
                "route": ("default", "code", "creative", "nowhere")[number % 4],
            }
            for number in range(40)
        ]
        answers = [answer for _, answer in pool.map(lambda fields: post(fresh, fields), asked)]
    after = page(fresh)
    assert after.keys() == before.keys()
    for route in ("default", "code", "creative"):
        mine = [json.loads(a["speculation"]) for a in answers if json.loads(a["details"])["route"] == route]
        assert of_route(after, "trtspec_requests_total", route) == len(mine) == {"default": 20}.get(route, 10)
        for name, key in (
            ("trtspec_steps_total", "steps"),
            ("trtspec_draft_tokens_total", "drafted"),
            ("trtspec_judged_tokens_total", "judged"),
            ("trtspec_accepted_tokens_total", "accepted"),
            ("trtspec_emitted_tokens_total", "emitted"),
        ):
            assert of_route(after, name, route) == sum(one[key] or 0 for one in mine), (route, name)
        at_positions = of_route(after, "trtspec_accepted_at_position_total", route)
        assert at_positions == of_route(after, "trtspec_accepted_tokens_total", route)
    assert of_route(after, "trtspec_accepted_tokens_total", "creative") == 0
    assert of_route(after, "trtspec_accepted_tokens_total", "code") > 0
