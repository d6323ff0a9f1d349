"""Lookahead (Jacobi) decoding: the target drafts for itself (Fu et al. 2024, arXiv:2402.02057)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from trtspec.methods.base import Method
from trtspec.methods.frozen import refused


def derived_draft_len(window_size: int, ngram_size: int, verification_set_size: int) -> int:
    """Draft tokens of a step; NVIDIA/TensorRT-LLM examples/lookahead/README.md @ 7ed07f06."""
    return (0 if ngram_size == 1 else ngram_size - 2) + (window_size - 1 + verification_set_size) * (ngram_size - 1)


class Lookahead(Method):
    """Lookahead (Jacobi) decoding: the target drafts for itself. Needs no second model; the draft length is derived."""

    method: Literal["lookahead"] = "lookahead"
    window_size: int = Field(7, ge=1, description="Positions guessed in parallel (W).")
    ngram_size: int = Field(7, ge=1, description="Length of the n-grams collected (N).")
    verification_set_size: int = Field(7, ge=0, description="N-grams verified in a step (G).")
    max_draft_len: int | None = Field(
        None,
        ge=0,
        description="Derived: (N - 2, or 0 when N is 1) + (W - 1 + G)(N - 1), 83 for 7, 7, 7. No other is taken.",
    )

    @property
    def draft_len(self) -> int:
        return derived_draft_len(self.window_size, self.ngram_size, self.verification_set_size)

    @model_validator(mode="after")
    def _legal(self) -> Lookahead:
        # cpp/tensorrt_llm/executor/lookaheadDecodingConfig.cpp, isLegal
        if self.ngram_size == 1 and (self.window_size, self.verification_set_size) != (1, 0):
            raise refused(
                "ngram_size",
                f"ngram_size 1 drafts nothing, and goes only with window_size 1 and verification_set_size 0 "
                f"(plain decoding), not {self.window_size} and {self.verification_set_size}",
                "make ngram_size at least 2",
            )
        return self

    @model_validator(mode="after")
    def _derived(self) -> Lookahead:
        if self.max_draft_len not in (None, self.draft_len):
            raise refused(
                "max_draft_len",
                f"max_draft_len {self.max_draft_len} is not what lookahead drafts: window_size {self.window_size}, "
                f"ngram_size {self.ngram_size} and verification_set_size {self.verification_set_size} make it "
                f"{self.draft_len}",
                f"leave max_draft_len out, or write {self.draft_len}",
            )
        return self
