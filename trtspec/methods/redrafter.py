"""A recurrent head drafts several beams (Cheng et al. 2024, arXiv:2403.09919)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trtspec.methods.base import Method
from trtspec.methods.model import Head


class ReDrafter(Method):
    """A recurrent head drafts several beams; the target verifies them as one tree. Draft length is beam_len."""

    method: Literal["redrafter"] = "redrafter"
    head: Head = Field(description="The recurrent head.")
    beams: int = Field(5, ge=1, description="Beams drafted.")
    beam_len: int = Field(5, ge=1, description="Tokens of each beam.")

    @property
    def draft_len(self) -> int:
        return self.beam_len
