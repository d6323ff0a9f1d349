"""What goes into an engine and what comes out: plain frozen values, token ids only. No torch, no Triton, no text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True)
class Sampling:
    """How one token is chosen; order: penalties, temperature, top-k, top-p, min-p. Already validated."""

    temperature: float = 0.0  # 0: greedy
    top_k: int = 0  # 0: off
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0  # over prompt and output
    presence_penalty: float = 0.0  # over the output
    frequency_penalty: float = 0.0  # over the output
    seed: int = 0  # 0 .. 2**64 - 1

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def penalised(self) -> bool:
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0


@dataclass(frozen=True)
class EngineRequest:
    """One request in token ids. Serialisable; stop strings are handed to the engine's own stop checker."""

    id: str
    prompt_ids: Sequence[int]
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    min_tokens: int = 0
    end_ids: frozenset[int] = frozenset()  # empty when ends are ignored
    stop: tuple[str, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()  # token sequences that must not be completed
    return_log_probs: bool = False
    max_draft_len: int = 0  # 0: plain decoding, no draft cost


@dataclass(frozen=True)
class Step:
    """What one target pass gave one request. What follows an end, stop or cap is already cut from every count.

    ``prefill``: the token came out of the prompt's own pass; such a step is left out of all rates.
    ``drafted``, ``judged``, ``accepted``: see ARCHITECTURE.md, "Words". ``finish`` is set on the last step only.
    A step can be empty of tokens only when it carries a finish reason or an error.
    """

    request_id: str
    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...] | None = None  # natural log of the raw softmax, one per token
    drafted: int = 0
    judged: int = 0
    accepted: int = 0
    prefill: bool = False
    finish: FinishReason | None = None
    error: str | None = None


@dataclass(frozen=True)
class Capabilities:
    """What an engine can do, for validation at the door."""

    method: str  # of speculation; "none" when it has none
    max_draft_len: int
    acceptance: Literal["match", "rejection"]
    max_seq_len: int
    max_input_len: int
    max_batch_size: int
    vocab_size: int  # ids below this are legal inputs


@dataclass(frozen=True)
class EngineStatus:
    active: int
    queued: int
    kv_tokens_used: int
    kv_tokens_total: int


class StopChecker(Protocol):
    """Watches one request's output text; ``push`` says whether the new token completes a stop string."""

    def push(self, token_id: int) -> bool: ...


StopCheckerFactory = Callable[[tuple[str, ...]], StopChecker]


class Engine(Protocol):
    """The one interface the front knows; the adapters behind it are the only code that knows an engine's tensors."""

    def capabilities(self) -> Capabilities: ...

    def generate(self, request: EngineRequest) -> Iterator[Step]:
        """Yields steps until one carries ``finish`` or ``error``. Closing the iterator cancels the request."""
        ...

    def cancel(self, request_id: str) -> None:
        """Ends the request within one step; its stream then yields a last step with finish "cancelled"."""
        ...

    def status(self) -> EngineStatus: ...
