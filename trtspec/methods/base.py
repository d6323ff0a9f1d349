"""What every speculative method's options share."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from trtspec.methods.frozen import Frozen
from trtspec.methods.model import Checkpoint

__all__ = ["Frozen", "Method"]


class Method(Frozen):
    """One method's options. ``draft_len`` is the most tokens a step may draft, in a tree its depth (0: plain)."""

    method: str

    @property
    def draft_len(self) -> int:
        return 0

    def model_refs(self) -> Mapping[str, Checkpoint]:
        """Dotted path below ``speculation`` -> the other whole models this method needs."""
        return {}


class Drafting(Method):
    """A method whose draft length is the user's choice."""

    max_draft_len: int = Field(4, ge=0, description="Most tokens a step may draft; 0 is plain decoding.")

    @property
    def draft_len(self) -> int:
        return self.max_draft_len
