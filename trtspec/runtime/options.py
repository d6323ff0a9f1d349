"""How to open the reference runtime: one frozen value that travels as JSON from the build to wherever it is served."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class EngineOptions:
    """Folders are packed checkpoints (see config.py). ``method_options`` are the spec's keys of the method."""

    target: str
    draft: str | None = None
    method: str = "none"
    method_options: Mapping[str, Any] = field(default_factory=dict)
    max_draft_len: int = 0
    max_batch_size: int = 8
    max_seq_len: int = 8192
    max_input_len: int = 8191
    max_num_tokens: int = 8192
    kv_tokens: int | None = None  # None: what fits half of the free memory; one longest request always fits
    vocab_size: int | None = None  # ids of the tokenizer; rows beyond are padding and never chosen. None: all rows
    threads: int | None = None
    compile: Literal["auto", "on", "off"] = "auto"
    kernels: str | None = None  # shared library of native CPU kernels that the build made
    device: str = "auto"  # a torch device; auto: a CUDA GPU where torch sees one, else the CPU

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> EngineOptions:
        return EngineOptions(**data)
