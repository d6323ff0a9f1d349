"""KV memory: one preallocated block per model, spans of it handed to sequences; no paging, eviction or copies."""

from __future__ import annotations

import torch

from trtspec.runtime.config import ModelConfig


def allocate_cache(config: ModelConfig, tokens: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """[layers, 2 (keys, values), kv_heads, tokens, D]; pages are touched when first written."""
    shape = (config.num_layers, 2, config.num_kv_heads, tokens, config.head_dim)
    return torch.empty(shape, dtype=dtype, device=device)


class SpanAllocator:
    """First fit over [0, total) tokens; freed neighbours merge. ``used`` is in tokens."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0
        self._free: list[tuple[int, int]] = [(0, total)]  # (start, length), by start

    def take(self, length: int) -> int | None:
        """The start of a free span of ``length`` tokens, or None when there is none now."""
        for index, (start, free) in enumerate(self._free):
            if free >= length:
                rest = (start + length, free - length)
                self._free[index : index + 1] = [rest] if rest[1] else []
                self.used += length
                return start
        return None

    def give_back(self, start: int, length: int) -> None:
        self.used -= length
        spans = sorted([*self._free, (start, length)])
        merged = [spans[0]]
        for begin, size in spans[1:]:
            last_begin, last_size = merged[-1]
            if last_begin + last_size == begin:
                merged[-1] = (last_begin, last_size + size)
            else:
                merged.append((begin, size))
        self._free = merged
