"""One request in flight: its tokens, its place in the cache, and what has been said of it so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trtspec.runtime.adjust import Adjuster
from trtspec.runtime.types import EngineRequest, Step, StopChecker

OnStep = Callable[[Step], None]


@dataclass
class Sequence:
    """``ids`` is prompt and output; the first ``computed`` of them have keys and values in the target's cache.

    While decoding, exactly the last id is not computed. ``limit`` is the number of tokens it may put out.
    """

    request: EngineRequest
    on_step: OnStep
    ids: list[int]
    limit: int
    stop: StopChecker | None = None
    adjuster: Adjuster | None = None
    start: int = -1  # first slot of its span, in every model's cache alike
    span: int = 0
    computed: int = 0
    memo: object = None  # the proposer's own
    cancelled: bool = False
    stuck: bool = False  # its bad words leave no token to choose

    @property
    def prompt_len(self) -> int:
        return len(self.request.prompt_ids)

    @property
    def emitted(self) -> int:
        return len(self.ids) - self.prompt_len

    @property
    def remaining(self) -> int:
        return self.limit - self.emitted

    @property
    def decoding(self) -> bool:
        return self.computed >= self.prompt_len
