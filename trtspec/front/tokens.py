"""What the front asks of a tokenizer. ``trtspec.checkpoints.tokenizer`` provides the real one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Tokenizer(Protocol):
    def encode(self, text: str, add_special: bool) -> list[int]: ...

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str: ...

    def token_bytes(self, id: int, /) -> bytes | None:
        """The bytes a token adds to a text; None where its vocabulary has no such meaning."""
        ...

    def is_special(self, id: int, /) -> bool: ...

    def render_chat(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True) -> str: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def end_ids(self) -> tuple[int, ...]: ...

    @property
    def chat_template(self) -> str | None: ...
