from __future__ import annotations

import random

import pytest

from trtspec.front.accounting import Counts
from trtspec.runtime.types import Step


def step(drafted: int, accepted: int, emitted: int | None = None) -> Step:
    return Step(
        "r",
        tuple(range(accepted + 1 if emitted is None else emitted)),
        drafted=drafted,
        judged=accepted + (accepted < drafted),
        accepted=accepted,
    )


def counted(*steps: Step, draft_len: int = 4) -> Counts:
    counts = Counts()
    for one in steps:
        counts.add(one, draft_len)
    return counts


def test_a28_counting() -> None:
    counts = counted(step(4, 4), step(4, 1), step(2, 0))
    assert counts.to_dict() == {
        "steps": 3,
        "drafted": 10,
        "judged": 7,
        "accepted": 5,
        "emitted": 8,
        "acceptance_rate": 0.5,
        "token_acceptance": 5 / 7,
        "acceptance_length": 8 / 3,
        "per_position": [2 / 3, 1 / 3, 1 / 2, 1 / 2],
        "per_position_conditional": [2 / 3, 1 / 2, 1, 1],
        "accepted_length_histogram": [1, 1, 0, 0, 1],
    }


def test_a28_two_requests_are_summed_and_then_divided() -> None:
    small = counted(step(1, 1), draft_len=4)
    large = counted(*[step(4, 2)] * 5, *[step(4, 0)] * 20)
    both = small + large
    assert (both.accepted, both.drafted) == (11, 101)
    assert both.acceptance_rate == pytest.approx(0.109, abs=5e-4)


def test_nothing_counted_is_null_of_the_right_length() -> None:
    counts = Counts(3)
    assert counts.acceptance_rate is counts.token_acceptance is counts.acceptance_length is None
    assert counts.per_position == counts.per_position_conditional == [None] * 3
    assert counts.histogram == [0] * 4


def test_prefill_and_steps_without_tokens_are_left_out() -> None:
    counts = counted(Step("r", (5,), prefill=True), step(4, 4), Step("r", (), finish="cancelled"))
    assert (counts.steps, counts.emitted, counts.acceptance_length) == (1, 5, 5.0)


def test_plain_decoding_reports_steps_and_emitted_only() -> None:
    counts = counted(Step("r", (5,), prefill=True), step(0, 0), step(0, 0), draft_len=0)
    plain = counts.plain_dict()
    assert {key for key, value in plain.items() if value is not None} == {"steps", "emitted"}
    assert (plain["steps"], plain["emitted"]) == (2, 2)
    assert plain.keys() == counts.to_dict().keys()


def test_positions_that_were_never_drafted_are_null() -> None:
    assert counted(step(2, 1)).per_position == [1.0, 0.0, None, None]


def test_sums_do_not_depend_on_how_the_steps_are_split() -> None:
    rng = random.Random(28)
    steps = []
    for _ in range(200):
        drafted = rng.randint(0, 4)
        steps.append(step(drafted, rng.randint(0, drafted)))
    cut = rng.randrange(200)
    assert counted(*steps[:cut]) + counted(*steps[cut:]) == counted(*steps)
    whole = counted(*steps)
    assert sum(n * count for n, count in enumerate(whole.histogram)) == whole.accepted == sum(whole.accepted_at)
    assert sum(whole.judged_at) == whole.judged
    assert sum(whole.drafted_at) == whole.drafted


def test_a_sum_over_different_draft_lengths_is_as_wide_as_the_longer() -> None:
    both = counted(step(2, 2), draft_len=2) + counted(step(4, 1), draft_len=4)
    assert both.max_draft_len == 4
    assert both.per_position == [1.0, 0.5, 0.0, 0.0]
