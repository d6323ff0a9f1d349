"""A head drafts from the target's hidden states: EAGLE-1 (Li et al. 2024, arXiv:2401.15077), EAGLE-2 (2406.16858)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from trtspec.methods.base import Drafting
from trtspec.methods.frozen import refused
from trtspec.methods.model import Head
from trtspec.methods.tree import Paths, check_depth, check_paths


class Eagle(Drafting):
    """A head drafts from the target's hidden states. Version 1 has a static tree, version 2 a dynamic one."""

    method: Literal["eagle"] = "eagle"
    head: Head = Field(description="The EAGLE head.")
    version: Literal[1, 2] = Field(1, description="1: static tree. 2: dynamic tree.")
    max_draft_len: int = Field(5, ge=0, description="Most tokens a step may draft; 0 is plain decoding.")
    choices: Paths | None = Field(None, description="Paths of the static tree (version 1); null is the paper's.")

    @model_validator(mode="after")
    def _sound_tree(self) -> Eagle:
        if self.choices is None:
            return self
        if self.version == 2:
            raise refused(
                "choices",
                "choices is the static tree of version 1, and version 2 grows its own",
                "leave choices out, or write version: 1",
            )
        check_paths("choices", self.choices)
        check_depth("choices", self.choices, self.max_draft_len)
        return self
