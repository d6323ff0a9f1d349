"""Where requests come in: what each model's ``execute`` does with them, so that whatever happens each is answered."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from trtspec.errors import RequestError
from trtspec.triton.answer import Answer

log = logging.getLogger("trtspec.reception")

THREADS = 8  # nobody waits for an engine's steps on them

Handle = Callable[[Any, str, dict[str, Any], Answer], None]


class Reception:
    """``handle`` gets the request, its id, its parameters and its Answer, on a thread of the reception's own.

    What it raises is the request's answer. It may return before the request has ended; then others end it.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="trtspec-reception")

    def take(self, requests: list[Any]) -> None:
        for request in requests:
            answer = Answer(request)
            try:
                self._pool.submit(self._one, request, answer)
            except RuntimeError as error:  # the pool is closed
                answer.fail(error)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _one(self, request: Any, answer: Answer) -> None:
        try:
            self._handle(request, _utf8(request.request_id, "the request's id"), _parameters(request), answer)
        except RequestError as error:
            answer.fail(error)
        except BaseException as error:
            log.exception("a request failed")
            answer.fail(error)


def tensors(request: Any) -> dict[str, Any]:
    return {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}


def _parameters(request: Any) -> dict[str, Any]:
    """Unknown fields of a JSON request come as parameters."""
    text = _utf8(request.parameters, "an unknown field")
    parameters: dict[str, Any] = json.loads(text) if text else {}
    return parameters


def _utf8(get: Callable[[], str], what: str) -> str:
    """Triton takes any bytes; its Python backend raises when they are read."""
    try:
        return get()
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise RequestError("parameters", f"{what} is not UTF-8: it holds the byte 0x{byte:02x}") from None
