"""Counting what speculation did: additive, so several requests are summed first and divided last."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trtspec.runtime.types import Step


@dataclass
class Counts:
    """Sums over steps. Index 0 of a ``*_at`` list is draft position 1; ``histogram[i]``: steps that accepted exactly i.

    A prefill step, and a step that gave no token, is no step here.
    """

    max_draft_len: int = 0
    steps: int = 0
    drafted: int = 0
    judged: int = 0
    accepted: int = 0
    emitted: int = 0
    drafted_at: list[int] = field(default_factory=list)
    judged_at: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)
    histogram: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._widen(self.max_draft_len)

    def add(self, step: Step, draft_len: int = 0) -> None:
        """Counts one step of a request whose draft length is ``draft_len``."""
        self._widen(max(draft_len, step.drafted))
        if step.prefill or not step.token_ids:
            return
        self.steps += 1
        self.drafted += step.drafted
        self.judged += step.judged
        self.accepted += step.accepted
        self.emitted += len(step.token_ids)
        self.histogram[step.accepted] += 1
        for counts, reached in (
            (self.drafted_at, step.drafted),
            (self.judged_at, step.judged),
            (self.accepted_at, step.accepted),
        ):
            for position in range(reached):
                counts[position] += 1

    def __add__(self, other: Counts) -> Counts:
        width = max(self.max_draft_len, other.max_draft_len)
        return Counts(
            width,
            self.steps + other.steps,
            self.drafted + other.drafted,
            self.judged + other.judged,
            self.accepted + other.accepted,
            self.emitted + other.emitted,
            _sum(self.drafted_at, other.drafted_at, width),
            _sum(self.judged_at, other.judged_at, width),
            _sum(self.accepted_at, other.accepted_at, width),
            _sum(self.histogram, other.histogram, width + 1),
        )

    @property
    def acceptance_rate(self) -> float | None:
        return ratio(self.accepted, self.drafted)

    @property
    def token_acceptance(self) -> float | None:
        return ratio(self.accepted, self.judged)

    @property
    def acceptance_length(self) -> float | None:
        return ratio(self.emitted, self.steps)

    @property
    def per_position(self) -> list[float | None]:
        return [ratio(*pair) for pair in zip(self.accepted_at, self.drafted_at, strict=True)]

    @property
    def per_position_conditional(self) -> list[float | None]:
        return [ratio(*pair) for pair in zip(self.accepted_at, self.judged_at, strict=True)]

    def to_dict(self) -> dict[str, Any]:
        """The counts and rates of a speculative request or route."""
        return {
            "steps": self.steps,
            "drafted": self.drafted,
            "judged": self.judged,
            "accepted": self.accepted,
            "emitted": self.emitted,
            "acceptance_rate": self.acceptance_rate,
            "token_acceptance": self.token_acceptance,
            "acceptance_length": self.acceptance_length,
            "per_position": self.per_position,
            "per_position_conditional": self.per_position_conditional,
            "accepted_length_histogram": list(self.histogram),
        }

    def plain_dict(self) -> dict[str, Any]:
        """The same keys for plain decoding: nothing was drafted, so only steps and emitted mean something."""
        kept = {"steps": self.steps, "emitted": self.emitted}
        return {key: kept.get(key) for key in self.to_dict()}

    def _widen(self, width: int) -> None:
        self.max_draft_len = max(self.max_draft_len, width)
        for counts in (self.drafted_at, self.judged_at, self.accepted_at):
            counts.extend([0] * (self.max_draft_len - len(counts)))
        self.histogram.extend([0] * (self.max_draft_len + 1 - len(self.histogram)))


def ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _sum(left: list[int], right: list[int], width: int) -> list[int]:
    padded = [counts + [0] * (width - len(counts)) for counts in (left, right)]
    return [a + b for a, b in zip(*padded, strict=True)]
