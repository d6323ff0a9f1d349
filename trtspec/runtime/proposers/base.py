"""What a proposer is: something cheap that guesses a sequence's next tokens."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

if TYPE_CHECKING:
    from trtspec.runtime.sequence import Sequence


@dataclass(frozen=True)
class Proposal:
    """``probs`` [len(tokens), V]: the distributions the tokens were drawn from; None when they were not drawn."""

    tokens: list[int]
    probs: torch.Tensor | None = None


class Proposer(Protocol):
    """One per engine; keeps what it needs per sequence on ``Sequence.memo``."""

    def propose(self, sequences: Seq[Sequence], lengths: Seq[int]) -> list[Proposal]:
        """At most ``lengths[i]`` (>= 1) tokens for each sequence; fewer, or none, where it has no good guess."""
        ...

    def settle(self, sequence: Sequence, accepted: int) -> None:
        """The target kept ``accepted`` of the last proposal, and ``sequence.ids`` already ends with what it chose."""
        ...
