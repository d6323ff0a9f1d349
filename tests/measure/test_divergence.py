from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from trtspec.measure.divergence import MIN_POSITIONS, NoiseFloor, explain, first_difference, measure_floor

VOCAB = 6


class ToyScorer:
    """Logits of a table of the last token; wider passes are off by up to ``noise``."""

    def __init__(self, noise: float = 0.0) -> None:
        self.table = np.random.default_rng(0).normal(size=(VOCAB, VOCAB)).astype(np.float32)
        self.noise = noise
        self.calls: list[tuple[int, int]] = []

    def __call__(self, ids: Sequence[int], rows: int) -> NDArray[Any]:
        self.calls.append((len(ids), rows))
        wobble = np.random.default_rng(rows).uniform(-self.noise, self.noise, (len(ids), VOCAB)) if rows > 1 else 0.0
        return self.table[list(ids)] + wobble


FLOOR = NoiseFloor(0.01, 5, MIN_POSITIONS)


@pytest.mark.parametrize(
    ("plain", "speculative", "position"),
    [([1, 2], [1, 2], None), ([], [], None), ([1, 2], [1, 3], 1), ([1, 2], [1], 1), ([1], [1, 2], 1), ([5], [4], 0)],
)
def test_first_difference(plain: list[int], speculative: list[int], position: int | None) -> None:
    assert first_difference(plain, speculative) == position


def test_the_floor_is_the_largest_difference_over_enough_positions() -> None:
    score = ToyScorer(noise=0.01)
    floor = measure_floor(score, [[1, 2, 3, 4] * 30] * 20, draft_len=4)
    assert 0.009 < floor.value <= 0.01001
    assert (floor.rows, floor.positions, floor.sound) == (5, 1080, True)
    assert {rows for _, rows in score.calls} == {1, 5}


def test_a_floor_of_too_few_positions_explains_nothing() -> None:
    score = ToyScorer(noise=10.0)
    floor = measure_floor(score, [[1, 2, 3]], draft_len=4)
    assert not floor.sound
    found = explain([1], [2], [3], score, floor)
    assert found is not None
    assert (found.explained, "rests on 3 positions" in found.verdict) == (False, True)


def test_equal_answers_are_no_divergence() -> None:
    assert explain([1], [2, 3], [2, 3], ToyScorer(), FLOOR) is None


def tie(score: ToyScorer, token: int, gap: float) -> tuple[int, int, int]:
    """Sets the row of ``token`` so that 2 leads 4 by ``gap`` and 3 is far below."""
    score.table[token] = [-5, -5, 1.0, -3, 1.0 - gap, -5]
    return 2, 4, 3


def test_a_tie_within_the_noise_is_explained_and_reported() -> None:
    score = ToyScorer()
    best, second, _ = tie(score, 5, 0.015)
    found = explain([1], [0, 5, best, 1], [0, 5, second, 0], score, FLOOR)
    assert found is not None
    assert (found.position, found.plain_token, found.speculative_token) == (2, best, second)
    assert [found.gap, found.chosen_gap] == pytest.approx([0.015, 0.015], abs=1e-6)
    assert (found.explained, found.floor) == (True, 0.01)
    assert found.verdict.startswith("explained: ")
    assert score.calls == [(3, 1)]
    assert found.to_dict()["position"] == 2


def test_a_gap_of_twice_the_noise_is_not_explained() -> None:
    score = ToyScorer()
    best, second, _ = tie(score, 5, 0.021)
    found = explain([5], [best], [second], score, FLOOR)
    assert found is not None
    assert (found.explained, "two best logits are 0.021 apart" in found.verdict) == (False, True)


def test_a_token_that_is_no_near_tie_is_not_explained_by_another_tie() -> None:
    score = ToyScorer()
    best, _, far = tie(score, 5, 0.001)
    found = explain([5], [best], [far], score, FLOOR)
    assert found is not None
    assert (found.explained, "4 below plain's best" in found.verdict) == (False, True)


@pytest.mark.parametrize(("plain", "speculative", "who"), [([1, 2], [1], "speculative"), ([1], [1, 2], "plain")])
def test_an_answer_that_ends_early_is_not_explained(plain: list[int], speculative: list[int], who: str) -> None:
    found = explain([1], plain, speculative, ToyScorer(), NoiseFloor(100.0, 5, MIN_POSITIONS))
    assert found is not None
    assert (found.explained, found.verdict) == (False, f"unexplained: the {who} answer ends where the other goes on")
