"""A small model drafts, the target verifies (Leviathan et al. 2022, arXiv:2211.17192; Chen et al. 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from trtspec.methods.base import Drafting
from trtspec.methods.model import Checkpoint
from trtspec.methods.tree import Paths, check_depth, check_paths


class DraftTarget(Drafting):
    """A small model with the target's vocabulary drafts, the target verifies."""

    method: Literal["draft_target"] = "draft_target"
    draft: Checkpoint = Field(description="The drafting model, with the keys of target.")
    tree: Paths | None = Field(None, description="Paths of a draft tree, as [[0], [0, 0], [1]]; null is a chain.")
    min_confidence: float | None = Field(
        None, gt=0, lt=1, description="Stop drafting below this probability of the draft's own token; null never."
    )

    @model_validator(mode="after")
    def _sound_tree(self) -> DraftTarget:
        if self.tree is not None:
            check_paths("tree", self.tree)
            check_depth("tree", self.tree, self.max_draft_len)
        return self

    def model_refs(self) -> Mapping[str, Checkpoint]:
        return {"draft": self.draft}
