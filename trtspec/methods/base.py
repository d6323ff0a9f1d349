"""What every speculative method's options share."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A strict, immutable value of the spec: unknown keys are errors, numbers are not read from strings."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Method(Frozen):
    """One method's options. ``draft_len`` is the most tokens a step may draft (0: plain decoding)."""

    method: str

    @property
    def draft_len(self) -> int:
        return int(getattr(self, "max_draft_len", 0))

    def model_refs(self) -> dict[str, Any]:
        """Dotted path below ``speculation`` -> the Checkpoint, of the other models this method needs."""
        return {}
