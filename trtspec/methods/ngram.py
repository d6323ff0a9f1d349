"""Prompt lookup: the draft is what followed the last occurrence of the present n-gram (Saxena 2023)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from trtspec.methods.base import Drafting
from trtspec.methods.frozen import refused


class Ngram(Drafting):
    """Prompt lookup: drafts what followed the last occurrence of the present n-gram. Needs no second model."""

    method: Literal["ngram"] = "ngram"
    max_ngram: int = Field(3, ge=1, description="Longest n-gram looked up; longer ones are tried first.")
    min_ngram: int = Field(1, ge=1, description="Shortest n-gram looked up.")

    @model_validator(mode="after")
    def _ordered(self) -> Ngram:
        if self.min_ngram > self.max_ngram:
            raise refused(
                "min_ngram",
                f"min_ngram {self.min_ngram} is larger than max_ngram {self.max_ngram}",
                "make min_ngram at most max_ngram",
            )
        return self
