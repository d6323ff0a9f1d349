"""Multi-token prediction modules that the checkpoint itself carries (DeepSeek-V3, arXiv:2412.19437)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trtspec.methods.base import Drafting


class Mtp(Drafting):
    """The checkpoint's own multi-token prediction modules draft."""

    method: Literal["mtp"] = "mtp"
    max_draft_len: int = Field(1, ge=0, description="Most tokens a step may draft; 0 is plain decoding.")
    layers: int | None = Field(None, ge=1, description="MTP modules to use; null is all the checkpoint has.")
