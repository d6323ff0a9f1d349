"""A server's responses become the JSON document of ``trtspec generate``. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trtspec.errors import ServeError


@dataclass
class Transcript:
    """Collects the outputs of one request: name -> flat list of values, response by response."""

    text: str = ""
    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    end: Mapping[str, list[Any]] | None = None

    def push(self, outputs: Mapping[str, Any]) -> str:
        """The text of this response. HTTP gives a lone value bare, without its list."""
        values = {name: value if isinstance(value, list) else [value] for name, value in outputs.items()}
        chunk = "".join(values.get("text_output", ()))
        self.text += chunk
        self.ids += values.get("output_ids", ())
        self.log_probs += values.get("output_log_probs", ())
        if "details" in values:
            self.end = values
        return chunk

    def document(self) -> dict[str, Any]:
        if self.end is None:
            raise ServeError("the server ended the stream without an end", code="broken_stream")
        details = json.loads(self.end["details"][0])
        return {
            "id": details["id"],
            "text": self.text,
            "token_ids": self.ids,
            "finish_reason": details["finish_reason"],
            "usage": details["usage"],
            "route": details["route"],
            "route_requested": details["route_requested"],
            "seed": details["seed"],
            "log_probs": self.log_probs or None,
            "speculation": json.loads(self.end["speculation"][0]),
            "timing": details["timing"],
        }


def the_front(fronts: Iterable[str], url: str) -> str:
    """The only model a user can mean. Raises ServeError when there are none or several."""
    names = sorted(fronts)
    if len(names) == 1:
        return names[0]
    found = ", ".join(names) if names else "none"
    raise ServeError(
        f"{url} serves {len(names)} models that can be asked ({found})",
        code="which_model",
        hint="name one with --model",
    )
