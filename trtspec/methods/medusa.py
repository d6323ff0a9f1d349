"""Extra heads on the target each guess one position ahead (Cai et al. 2024, arXiv:2401.10774)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from trtspec.methods.base import Method
from trtspec.methods.model import Head
from trtspec.methods.tree import Paths, check_paths, depth

PAPER_TREE_DEPTH = 4  # the paper's tree has 63 nodes, 4 deep (FasterDecoding/Medusa medusa/model/medusa_choices.py)


class Medusa(Method):
    """Heads on the target each guess one position ahead; their guesses form a tree. Draft length is its depth."""

    method: Literal["medusa"] = "medusa"
    head: Head = Field(description="The Medusa heads.")
    choices: Paths | None = Field(None, description="Paths of the tree; null is the paper's, 63 nodes and 4 deep.")

    @property
    def draft_len(self) -> int:
        return PAPER_TREE_DEPTH if self.choices is None else depth(self.choices)

    @model_validator(mode="after")
    def _sound_tree(self) -> Medusa:
        if self.choices is not None:
            check_paths("choices", self.choices)
        return self
