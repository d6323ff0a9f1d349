"""A small model drafts, the target verifies (Leviathan et al. 2022, arXiv:2211.17192; Chen et al. 2023)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from trtspec.methods.base import Method
from trtspec.methods.model import Checkpoint


class DraftTarget(Method):
    method: Literal["draft_target"] = "draft_target"
    draft: Checkpoint
    max_draft_len: int = Field(4, ge=0)
    tree: list[list[int]] | None = None
    min_confidence: float | None = Field(None, gt=0, lt=1)

    def model_refs(self) -> dict[str, Any]:
        return {"draft": self.draft}
