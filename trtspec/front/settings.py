"""What the front was built with: one frozen value that travels as JSON from the build to wherever it is served."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class RouteSettings:
    kind: str = "chat"
    speculation: Literal["auto", "always", "never"] = "auto"
    max_draft_len: int | None = None  # None: the method's


@dataclass(frozen=True)
class OffWhen:
    """Requests beyond any of these bounds are decoded plainly; None: no bound."""

    batch_above: int | None = None
    prompt_tokens_above: int | None = None
    temperature_above: float | None = None
    max_tokens_below: int | None = None


@dataclass(frozen=True)
class FrontSettings:
    """``runtime`` is the resolved one, never "auto". ``routes`` always holds "default"."""

    name: str
    runtime: str
    method: str
    max_draft_len: int
    max_seq_len: int
    max_input_len: int
    max_batch_size: int
    routes: Mapping[str, RouteSettings] = field(default_factory=lambda: {"default": RouteSettings()})
    off_when: OffWhen = OffWhen()

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> FrontSettings:
        routes = {name: RouteSettings(**route) for name, route in data["routes"].items()}
        return FrontSettings(**{**data, "routes": routes, "off_when": OffWhen(**data["off_when"])})
