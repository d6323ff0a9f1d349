"""Rotary position embeddings: inverse frequencies of each type, and the cos/sin table.

Sources: RoFormer (arXiv:2104.09864) for the base; linear: Chen et al. 2023 (arXiv:2306.15595); dynamic: NTK-aware
scaling by the sequence length; llama3: the Llama 3.1 model code; yarn: Peng et al. 2023 (arXiv:2309.00071).
"""

from __future__ import annotations

import math

import torch

from trtspec.runtime.config import RopeConfig


def inverse_frequencies(rope: RopeConfig, head_dim: int, seq_len: int) -> torch.Tensor:
    """[head_dim / 2] in radians per position, float64. ``seq_len`` is the served length (used by `dynamic` only)."""
    theta = rope.theta
    if rope.type == "dynamic":
        trained = rope.original_max_positions or seq_len
        if seq_len > trained:
            ratio = rope.factor * seq_len / trained - (rope.factor - 1)
            theta = theta * ratio ** (head_dim / (head_dim - 2))
    exponent = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    inv = theta**-exponent
    if rope.type == "linear":
        return inv / rope.factor
    if rope.type == "llama3":
        return _llama3(inv, rope)
    if rope.type == "yarn":
        return _yarn(inv, rope, head_dim)
    return inv


def _llama3(inv: torch.Tensor, rope: RopeConfig) -> torch.Tensor:
    """Low frequencies divided by ``factor``, high ones kept, a linear blend in wavelength between."""
    trained = rope.original_max_positions or 8192
    wavelength = 2 * math.pi / inv
    smooth = (trained / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    smooth = smooth.clamp(0, 1)
    return (1 - smooth) * inv / rope.factor + smooth * inv


def _yarn(inv: torch.Tensor, rope: RopeConfig, head_dim: int) -> torch.Tensor:
    """Interpolates dimensions that turn less than ``beta_slow`` times over the trained length, keeps those above
    ``beta_fast``, blends linearly in the dimension index between."""
    trained = rope.original_max_positions or 4096

    def dimension(turns: float) -> float:
        return head_dim * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    low = max(math.floor(dimension(rope.beta_fast)), 0)
    high = min(math.ceil(dimension(rope.beta_slow)), head_dim - 1)
    index = torch.arange(head_dim // 2, dtype=torch.float64)
    blend = ((index - low) / max(high - low, 0.001)).clamp(0, 1)
    return inv / rope.factor * blend + inv * (1 - blend)


def attention_factor(rope: RopeConfig) -> float:
    """What cos and sin are multiplied by; 1 but for yarn."""
    if rope.type != "yarn":
        return 1.0
    if rope.attention_factor is not None:
        return rope.attention_factor
    return 0.1 * math.log(rope.factor) + 1.0 if rope.factor > 1 else 1.0


def rope_table(rope: RopeConfig, head_dim: int, seq_len: int) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, each [seq_len, head_dim / 2] float32."""
    angles = torch.outer(torch.arange(seq_len, dtype=torch.float64), inverse_frequencies(rope, head_dim, seq_len))
    factor = attention_factor(rope)
    return (angles.cos() * factor).float(), (angles.sin() * factor).float()
