from __future__ import annotations

from typing import Literal

from trtspec.methods.base import Method


class NoSpeculation(Method):
    method: Literal["none"] = "none"
