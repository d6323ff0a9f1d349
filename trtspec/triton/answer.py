"""The one way a request is answered: pieces, then exactly one end. Whoever comes second finds it closed."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import triton_python_backend_utils as pb_utils

from trtspec.errors import RequestError, ServeError, TrtspecError
from trtspec.triton import outputs

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class Answer:
    """Wraps a request's response sender. Safe from several threads: the one that sends and the watcher."""

    def __init__(self, request: Any) -> None:
        self._sender = request.get_response_sender()
        self._lock = threading.Lock()
        self._wanted = frozenset(request.requested_output_names())
        self.relayed = False  # then an error goes out as ``status`` (see relayed.py)
        self.closed = False

    def gone(self) -> bool:
        """Whether the client has cancelled or hung up, as far as Triton knows."""
        return not self.closed and bool(self._sender.is_cancelled())

    def piece(self, arrays: Mapping[str, Any]) -> None:
        self._send(self._response(arrays), final=False)

    def end(self, arrays: Mapping[str, Any]) -> None:
        self._send(self._response(arrays), final=True)

    def fail(self, error: BaseException) -> None:
        message = error.message if isinstance(error, TrtspecError) else f"{type(error).__name__}: {error}"
        code = _code(error)
        if self.relayed:
            self.end(outputs.status({"error": message, "code": code}))
        else:
            self.fail_as(message, code)

    def fail_as(self, message: str, code: str) -> None:
        """``code`` is a name of TritonError's."""
        error = pb_utils.TritonError(message, getattr(pb_utils.TritonError, code))
        self._send(pb_utils.InferenceResponse(error=error), final=True)

    def end_with(self, tensors: list[Any]) -> None:
        """Passes another model's output tensors on."""
        self._send(pb_utils.InferenceResponse(output_tensors=tensors), final=True)

    def _response(self, arrays: Mapping[str, Any]) -> Any:
        """Name -> numpy array, batch dimension included. What was not asked for is left out."""
        tensors = [pb_utils.Tensor(name, array) for name, array in arrays.items() if name in self._wanted]
        return pb_utils.InferenceResponse(output_tensors=tensors)

    def _send(self, response: Any, final: bool) -> None:
        with self._lock:
            if self.closed:
                return
            self.closed = final
            self._sender.send(response, flags=_FINAL if final else 0)


def _code(error: BaseException) -> str:
    """RequestError: the client's to mend. ServeError: try elsewhere or later."""
    if isinstance(error, RequestError):
        return "INVALID_ARG"
    return "UNAVAILABLE" if isinstance(error, ServeError) else "INTERNAL"
