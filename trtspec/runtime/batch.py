"""One pass's tokens, flat: rows of several sequences side by side, each with its own length."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Span:
    """What one sequence brings to a pass: ``tokens`` follow ``past`` tokens that are already in its cache span."""

    tokens: list[int]
    start: int  # first cache slot of the sequence
    past: int
    logits_from: int  # logits are wanted for tokens[logits_from:]; len(tokens) for none


@dataclass(frozen=True)
class Batch:
    """T tokens, R logit rows. ``spans``: (first row, count, cache start, past) per sequence."""

    tokens: torch.Tensor  # [T] int64
    slots: torch.Tensor  # [T] int64, cache slot of each token
    starts: torch.Tensor  # [T] int64, first cache slot of the token's sequence
    cos: torch.Tensor  # [T, ...] rows of the position tables, in the form of Ops.rope_tables
    sin: torch.Tensor
    logit_rows: torch.Tensor | None  # [R] int64; None: all T
    spans: tuple[tuple[int, int, int, int], ...]


def make_batch(spans: list[Span], cos: torch.Tensor, sin: torch.Tensor) -> Batch:
    """``cos``, ``sin`` are the position tables, one row a position."""
    tokens: list[int] = []
    slots: list[int] = []
    starts: list[int] = []
    rows: list[int] = []
    placed: list[tuple[int, int, int, int]] = []
    for span in spans:
        at, count = len(tokens), len(span.tokens)
        tokens += span.tokens
        slots += range(span.start + span.past, span.start + span.past + count)
        starts += [span.start] * count
        rows += range(at + span.logits_from, at + count)
        placed.append((at, count, span.start, span.past))
    device = cos.device
    index = torch.tensor([tokens, slots, starts], dtype=torch.int64, device=device)
    positions = index[1] - index[2]
    logit_rows = None if len(rows) == len(tokens) else torch.tensor(rows, dtype=torch.int64, device=device)
    return Batch(index[0], index[1], index[2], cos[positions], sin[positions], logit_rows, tuple(placed))
