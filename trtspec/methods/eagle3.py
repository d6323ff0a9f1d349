"""A head drafts from hidden states of several of the target's layers (Li et al. 2025, arXiv:2503.01840)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from trtspec.methods.base import Drafting
from trtspec.methods.frozen import refused
from trtspec.methods.model import Head


class Eagle3(Drafting):
    """A head drafts from hidden states of several of the target's layers."""

    method: Literal["eagle3"] = "eagle3"
    head: Head = Field(description="The EAGLE-3 head.")
    tree: Literal["static", "dynamic"] | None = Field(None, description="static or dynamic; null is a chain.")
    layers: list[Annotated[int, Field(ge=0)]] | None = Field(
        None, min_length=1, description="Target layers the head reads; null is what the head's config says."
    )

    @model_validator(mode="after")
    def _distinct_layers(self) -> Eagle3:
        if self.layers is not None and len(set(self.layers)) != len(self.layers):
            raise refused("layers", f"layers {self.layers} names a layer twice", "name each layer once")
        return self
