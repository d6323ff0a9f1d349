"""From logits to a distribution to a token, over many rows at once; each row with its own parameters."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch

from trtspec.runtime.types import Sampling

Tensor = torch.Tensor

# Wide enough to hold most nucleus sets without sorting a whole vocabulary; beyond it the row is sorted in full.
TOP_WINDOW = 1024


def distribution(logits: Tensor, params: Seq[Sampling]) -> Tensor:
    """[R, V] float32 logits (penalties already applied) -> probabilities after temperature, top-k, top-p and min-p.

    Every ``params[r].temperature`` is above 0. Filters see the distribution renormalised by the filters before them.
    """
    temperature = torch.tensor([p.temperature for p in params], dtype=torch.float32, device=logits.device)
    scaled = logits - logits.max(dim=-1, keepdim=True).values
    scaled = scaled / temperature.clamp_min(1e-6).unsqueeze(1)
    if any(p.top_k > 0 for p in params):
        scaled = _keep_top_k(scaled, [p.top_k for p in params])
    if any(p.top_p < 1.0 for p in params):
        scaled = _keep_top_p(scaled, [p.top_p for p in params])
    if any(p.min_p > 0.0 for p in params):
        min_p = torch.tensor([p.min_p for p in params], dtype=torch.float32, device=logits.device)
        # p / p_max = exp(logit - max), and the maximum is 0 here
        scaled = scaled.masked_fill(scaled.exp() < min_p.unsqueeze(1), -torch.inf)
    return torch.softmax(scaled, dim=-1)


def _keep_top_k(logits: Tensor, ks: list[int]) -> Tensor:
    """Keeps the k largest of each row (and what ties with the k-th); 0 keeps all."""
    vocab = logits.shape[1]
    widest = min(max(ks), vocab)
    top = torch.topk(logits, widest, dim=-1).values
    index = torch.tensor([min(k, vocab) - 1 if k > 0 else 0 for k in ks], device=logits.device)
    threshold = top.gather(1, index.unsqueeze(1))
    off = torch.tensor([k <= 0 for k in ks], device=logits.device).unsqueeze(1)
    return logits.masked_fill((logits < threshold) & ~off, -torch.inf)


def _keep_top_p(logits: Tensor, ps: list[float]) -> Tensor:
    """Keeps the smallest set of most likely tokens whose mass reaches p; the most likely one always stays."""
    limit = torch.tensor(ps, dtype=torch.float32, device=logits.device).unsqueeze(1)
    probs = torch.softmax(logits, dim=-1)
    window = min(TOP_WINDOW, probs.shape[1])
    values, index = torch.topk(probs, window, dim=-1)
    mass = values.cumsum(dim=-1)
    if window < probs.shape[1] and bool(((mass[:, -1:] < limit) & (limit < 1.0)).any()):
        values, index = torch.sort(probs, dim=-1, descending=True, stable=True)
        mass = values.cumsum(dim=-1)
    keep = torch.zeros_like(probs, dtype=torch.bool)
    keep.scatter_(1, index, (mass - values) < limit)
    return logits.masked_fill(~(keep | (limit >= 1.0)), -torch.inf)


def choose(probs: Tensor, uniforms: Seq[float]) -> Tensor:
    """Inverse CDF: [R, V] non-negative weights (need not sum to 1) and one number in [0, 1) a row -> ids [R].

    An id of weight 0 is never chosen.
    """
    cdf = probs.to(torch.float64).cumsum(dim=-1)
    u = torch.tensor(uniforms, dtype=torch.float64, device=probs.device).unsqueeze(1)
    picked = torch.searchsorted(cdf, u * cdf[:, -1:], right=True).squeeze(1)
    return torch.minimum(picked, _last_positive(probs))


def _last_positive(probs: Tensor) -> Tensor:
    """[R] index of the last entry above 0; guards the end of the CDF against rounding."""
    width = probs.shape[1]
    return width - 1 - (probs > 0).flip(1).to(torch.uint8).argmax(dim=-1)
