"""Which drafted tokens the target keeps, and the one token it adds. Lossless by construction.

Greedy: a draft is kept while it equals the target's argmax. Sampled (Leviathan et al. 2022, arXiv:2211.17192, algorithm
1; Chen et al. 2023, arXiv:2302.01318): draft x is kept with probability min(1, p(x)/q(x)); after the first rejection
the token comes from max(0, p - q) normalised; after a whole block from p. A deterministic proposer has q(x) = 1.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch

from trtspec.runtime import noise
from trtspec.runtime.sampling import choose, distribution
from trtspec.runtime.types import Sampling

Tensor = torch.Tensor


@dataclass(frozen=True)
class Judgement:
    """``accepted`` drafts are kept, then ``token`` follows."""

    accepted: int
    token: int


def judge_greedy(best: Seq[int], drafts: Seq[int]) -> Judgement:
    """``best``: the target's argmax after each prefix of ``drafts``, 1 + len(drafts) of them."""
    accepted = 0
    while accepted < len(drafts) and drafts[accepted] == best[accepted]:
        accepted += 1
    return Judgement(accepted, best[accepted])


def judge_sampled(
    logits: Tensor,
    drafts: Seq[Seq[int]],
    draft_probs: Seq[Tensor | None],
    params: Seq[Sampling],
    positions: Seq[int],
) -> list[Judgement]:
    """Several requests' blocks at once.

    ``logits`` [sum(1 + k_i), V] float32, penalties applied; ``draft_probs[i]`` [k_i, V] is the distribution that
    request i's drafts were drawn from, None for a deterministic proposer; ``positions[i]`` is the index of the first
    output token that the block decides.
    """
    row_params = [p for p, d in zip(params, drafts, strict=True) for _ in range(len(d) + 1)]
    target = distribution(logits, row_params)
    ratios = _acceptance(target, drafts, draft_probs)
    accepted: list[int] = []
    last_rows: list[int] = []
    at = 0
    for index, draft in enumerate(drafts):
        kept = 0
        while kept < len(draft):
            u = noise.uniform(params[index].seed, positions[index] + kept, noise.ACCEPT)
            if u >= ratios[at - index + kept]:
                break
            kept += 1
        accepted.append(kept)
        last_rows.append(at + kept)
        at += len(draft) + 1
    final = target[last_rows]
    for index, (draft, q, kept) in enumerate(zip(drafts, draft_probs, accepted, strict=True)):
        if kept < len(draft):
            final[index] = residual(final[index], draft[kept], None if q is None else q[kept])
    uniforms = [
        noise.uniform(p.seed, position + kept, noise.CHOOSE)
        for p, position, kept in zip(params, positions, accepted, strict=True)
    ]
    tokens = choose(final, uniforms).tolist()
    return [Judgement(kept, token) for kept, token in zip(accepted, tokens, strict=True)]


def _acceptance(target: Tensor, drafts: Seq[Seq[int]], draft_probs: Seq[Tensor | None]) -> list[float]:
    """min(1, p/q) is left as p/q: one number per drafted token, all requests in order."""
    rows: list[int] = []
    tokens: list[int] = []
    at = 0
    for draft in drafts:
        rows += range(at, at + len(draft))
        tokens += draft
        at += len(draft) + 1
    if not rows:
        return []
    p = target[rows, tokens]
    q = torch.ones_like(p)
    at = 0
    for draft, probs in zip(drafts, draft_probs, strict=True):
        if probs is not None and draft:
            q[at : at + len(draft)] = probs[range(len(draft)), list(draft)]
        at += len(draft)
    return [float(v) for v in (p / q).tolist()]


def residual(p: Tensor, token: int, q: Tensor | None) -> Tensor:
    """max(0, p - q), unnormalised, [V]; q None: all of q's mass is on ``token``. Never all zero: where rounding leaves
    nothing, p itself is the limit of the normalised residual."""
    left = p.clone()
    if q is None:
        left[token] = 0.0
    else:
        left = (left - q).clamp_min_(0.0)
    return left if bool((left > 0).any()) else p
