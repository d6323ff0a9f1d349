"""The draft is what followed the longest suffix seen before, found with a suffix automaton."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trtspec.methods.base import Drafting


class Suffix(Drafting):
    """Suffix automaton: drafts what followed the longest earlier match of the text's end. Needs no second model."""

    method: Literal["suffix"] = "suffix"
    max_draft_len: int = Field(8, ge=0, description="Most tokens a step may draft; 0 is plain decoding.")
    min_match: int = Field(2, ge=1, description="Shortest match, in tokens, that is drafted from.")
    shared: bool = Field(False, description="Whether requests also match in the text of others.")
