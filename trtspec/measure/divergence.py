"""Are two greedy answers the same, or does rounding explain where they part? See ARCHITECTURE.md, "lossless".

A pass of one row and a pass of draft length + 1 rows may round differently, so the two may part where the target's two
best tokens are closer than that noise. Anything else is a fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

MIN_POSITIONS = 1000  # that a noise floor must rest on


class Scorer(Protocol):
    def __call__(self, ids: Sequence[int], rows: int) -> NDArray[Any]:
        """The target's raw logits [len(ids), V]; row i is what follows ids[: i + 1], from passes of ``rows`` rows."""
        ...


@dataclass(frozen=True)
class NoiseFloor:
    """The largest difference of a logit for the same context in passes of one row and of ``rows`` rows."""

    value: float
    rows: int
    positions: int

    @property
    def sound(self) -> bool:
        return self.positions >= MIN_POSITIONS


@dataclass(frozen=True)
class Divergence:
    """``position`` counts the output's tokens from 0; a token is None where that answer had already ended.

    ``gap``: plain's best logit less its second best there; ``chosen_gap``: less that of the speculative token.
    """

    position: int
    plain_token: int | None
    speculative_token: int | None
    gap: float
    chosen_gap: float
    floor: float
    explained: bool
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def first_difference(plain: Sequence[int], speculative: Sequence[int]) -> int | None:
    """Where two outputs part; None where they are equal."""
    for position, (left, right) in enumerate(zip(plain, speculative, strict=False)):
        if left != right:
            return position
    return None if len(plain) == len(speculative) else min(len(plain), len(speculative))


def measure_floor(score: Scorer, contexts: Iterable[Sequence[int]], draft_len: int) -> NoiseFloor:
    """Over all positions of the contexts, stopping once enough were seen."""
    rows, largest, positions = draft_len + 1, 0.0, 0
    for ids in contexts:
        if positions >= MIN_POSITIONS:
            break
        difference = np.abs(_float64(score(ids, 1)) - _float64(score(ids, rows)))
        largest = max(largest, float(difference.max(initial=0.0)))
        positions += len(ids)
    return NoiseFloor(largest, rows, positions)


def explain(
    prompt: Sequence[int], plain: Sequence[int], speculative: Sequence[int], score: Scorer, floor: NoiseFloor
) -> Divergence | None:
    """None where the two outputs are equal. Both are greedy and without penalties."""
    position = first_difference(plain, speculative)
    if position is None:
        return None
    before, after = _at(plain, position), _at(speculative, position)
    row = _float64(score([*prompt, *plain[:position]], 1)[-1])
    second, best = (float(logit) for logit in np.sort(row)[-2:])
    gap, chosen_gap = best - second, float("inf") if after is None else best - float(row[after])
    fault = _early_end(before, after) or _too_far(gap, chosen_gap, floor)
    verdict = fault or f"explained: a tie within the rounding noise of passes of 1 and of {floor.rows} rows"
    return Divergence(position, before, after, gap, chosen_gap, floor.value, fault is None, verdict)


def _at(ids: Sequence[int], position: int) -> int | None:
    return ids[position] if position < len(ids) else None


def _early_end(plain: int | None, speculative: int | None) -> str | None:
    if plain is not None and speculative is not None:
        return None
    return f"unexplained: the {'plain' if plain is None else 'speculative'} answer ends where the other goes on"


def _too_far(gap: float, chosen_gap: float, floor: NoiseFloor) -> str | None:
    """Why rounding does not explain it; None where it does."""
    if not floor.sound:
        return f"unexplained: the noise floor rests on {floor.positions} positions, fewer than {MIN_POSITIONS}"
    noise = f"not under twice the noise {floor.value:.3g}"
    if gap >= 2 * floor.value:
        return f"unexplained: plain's two best logits are {gap:.3g} apart, {noise}"
    if chosen_gap >= 2 * floor.value:
        return f"unexplained: the speculative token is {chosen_gap:.3g} below plain's best, {noise}"
    return None


def _float64(logits: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(logits, dtype=np.float64)
