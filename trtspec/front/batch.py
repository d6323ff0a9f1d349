"""Many requests through one engine at once, answered in their order."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from trtspec.errors import InternalError, RequestError
from trtspec.front.front import Front
from trtspec.front.jsonl import Line, error_document
from trtspec.front.reply import Reply
from trtspec.front.tokens import Tokenizer
from trtspec.runtime.types import EngineRequest, Step


class Submits(Protocol):
    """The part of an engine that a batch needs; ``on_step`` may be called from another thread."""

    def submit(self, request: EngineRequest, on_step: Callable[[Step], None]) -> None: ...


@dataclass
class Tally:
    """How far a batch is. ``broken``: the first message of an engine that failed, which is no request's fault."""

    requests: int
    done: int = 0
    failed: int = 0
    tokens: int = 0
    broken: str | None = None
    on_change: Callable[[Tally], None] = field(default=lambda _: None, repr=False)


class Batch:
    """``run`` yields one document per line, in order, each as soon as it and all before it are known."""

    def __init__(self, front: Front, tokenizer: Tokenizer, engine: Submits, tally: Tally) -> None:
        self._front = front
        self._tokenizer = tokenizer
        self._engine = engine
        self._tally = tally
        self._steps: queue.SimpleQueue[tuple[int, Step]] = queue.SimpleQueue()
        self._replies: dict[int, Reply] = {}
        self._documents: dict[int, dict[str, Any]] = {}

    def run(self, lines: Sequence[Line]) -> Iterator[dict[str, Any]]:
        for index, line in enumerate(lines):
            self._begin(index, line)
        for index in range(len(lines)):
            while index not in self._documents:
                self._take(*self._steps.get(), lines)
            yield self._documents.pop(index)

    def _begin(self, index: int, line: Line) -> None:
        try:
            if line.request is None:
                raise line.error or RequestError("request", "the line holds no request")
            prepared = self._front.prepare(line.request)
            self._replies[index] = Reply(prepared, self._tokenizer)
            self._engine.submit(prepared.engine_request, lambda step: self._steps.put((index, step)))
        except RequestError as error:
            self._replies.pop(index, None)
            self._end(index, error_document(line.id, error), failed=True)

    def _take(self, index: int, step: Step, lines: Sequence[Line]) -> None:
        reply = self._replies[index]
        try:
            reply.push(step)
        except InternalError as error:
            self._tally.broken = self._tally.broken or error.message
            self._end(index, error_document(lines[index].id, RequestError("engine", error.message)), failed=True)
            return
        self._tally.tokens += len(step.token_ids)
        if step.finish is not None:
            self._end(index, reply.result(), failed=False)

    def _end(self, index: int, document: dict[str, Any], *, failed: bool) -> None:
        self._replies.pop(index, None)
        self._documents[index] = document
        self._tally.done += 1
        self._tally.failed += failed
        self._tally.on_change(self._tally)
