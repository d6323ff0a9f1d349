"""Prompt lookup: the draft is what followed the last occurrence of the present n-gram (Saxena 2023)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trtspec.methods.base import Method


class Ngram(Method):
    method: Literal["ngram"] = "ngram"
    max_draft_len: int = Field(4, ge=0)
    max_ngram: int = Field(3, ge=1)
    min_ngram: int = Field(1, ge=1)
