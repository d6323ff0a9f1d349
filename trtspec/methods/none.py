"""Plain decoding."""

from __future__ import annotations

from typing import Literal

from trtspec.methods.base import Method


class NoSpeculation(Method):
    """Plain decoding: one token a step."""

    method: Literal["none"] = "none"
