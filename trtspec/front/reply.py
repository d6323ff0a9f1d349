"""One request's answer: steps in, text chunks out, and the JSON document of ``generate`` and ``run`` at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from trtspec.errors import InternalError
from trtspec.front.accounting import Counts
from trtspec.front.front import Prepared
from trtspec.front.text import TextStream
from trtspec.front.tokens import Tokenizer
from trtspec.runtime.types import FinishReason, Step


class Reply:
    """``clock`` is in seconds; the request's time starts with the Reply."""

    def __init__(self, prepared: Prepared, tokenizer: Tokenizer, clock: Callable[[], float] = time.monotonic) -> None:
        self._prepared = prepared
        self._clock = clock
        self._stream = TextStream(tokenizer, prepared.engine_request.stop)
        self._start = clock()
        self._first: float | None = None
        self._last = self._start
        self._chunks: list[str] = []
        self._log_probs: list[float] = []
        self.token_ids: list[int] = []
        self.counts = Counts(prepared.decision.max_draft_len)
        self.finish_reason: FinishReason | None = None

    @property
    def text(self) -> str:
        return "".join(self._chunks)

    def push(self, step: Step) -> str:
        """The text this step makes certain; all that is left of it where the step finishes the request."""
        if step.error is not None:
            raise InternalError(step.error, where=self._prepared.id)
        self._last = self._clock()
        if step.token_ids and self._first is None:
            self._first = self._last
        self.token_ids += step.token_ids
        self._log_probs += step.log_probs or ()
        self.counts.add(step, self._prepared.decision.max_draft_len)
        chunk = self._stream.push(step.token_ids)
        if step.finish is not None:
            self.finish_reason = step.finish
            chunk += self._stream.finish()
        self._chunks.append(chunk)
        return chunk

    def result(self) -> dict[str, Any]:
        prepared = self._prepared
        return {
            "id": prepared.id,
            "text": self.text,
            "token_ids": list(self.token_ids),
            "finish_reason": self.finish_reason,
            "usage": {"prompt_tokens": prepared.prompt_tokens, "completion_tokens": len(self.token_ids)},
            "route": prepared.route,
            "route_requested": prepared.route_requested,
            "seed": prepared.seed,
            "log_probs": list(self._log_probs) if prepared.engine_request.return_log_probs else None,
            "speculation": self.speculation(),
            "timing": self.timing(),
        }

    def speculation(self) -> dict[str, Any]:
        decision = self._prepared.decision
        return {
            "enabled": decision.enabled,
            "method": self._prepared.method,
            "max_draft_len": decision.max_draft_len,
            "acceptance": self._prepared.acceptance,
            "reason": decision.reason,
            **(self.counts.to_dict() if decision.enabled else self.counts.plain_dict()),
        }

    def timing(self) -> dict[str, float | None]:
        total = self._last - self._start
        first = None if self._first is None else self._first - self._start
        spent = 0.0 if first is None else total - first
        rate = (len(self.token_ids) - 1) / spent if spent > 0 and len(self.token_ids) > 1 else None
        return {"ttft_s": first, "total_s": total, "tokens_per_s": rate}
