"""A token tree from one or several draft models, verified in one pass (Miao et al. 2023, arXiv:2305.09781)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from trtspec.methods.base import Drafting
from trtspec.methods.frozen import refused
from trtspec.methods.model import Checkpoint


class SpecInfer(Drafting):
    """One or several small models draft a token tree that the target verifies in one pass."""

    method: Literal["specinfer"] = "specinfer"
    drafts: list[Checkpoint] = Field(min_length=1, description="The drafting models, each with the keys of target.")
    branching: list[Annotated[int, Field(ge=1)]] | None = Field(
        None, description="Children of each node, one number for each depth; null is a chain from each draft."
    )

    @model_validator(mode="after")
    def _one_number_a_depth(self) -> SpecInfer:
        if self.branching is not None and len(self.branching) != self.max_draft_len:
            raise refused(
                "branching",
                f"branching has {len(self.branching)} numbers and max_draft_len is {self.max_draft_len}",
                "write one number for each depth",
            )
        return self

    def model_refs(self) -> Mapping[str, Checkpoint]:
        return {f"drafts.{index}": draft for index, draft in enumerate(self.drafts)}
