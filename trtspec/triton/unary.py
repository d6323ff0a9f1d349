"""The model ``<name>_unary``: a stateless relay to ``<name>`` for clients that ask with a plain ``infer``.

Triton answers such a request to a decoupled model with UNIMPLEMENTED (501 over HTTP).
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from trtspec.triton import outputs
from trtspec.triton.answer import Answer
from trtspec.triton.decided import decided
from trtspec.triton.flights import Flights, Watcher
from trtspec.triton.front import THREADS
from trtspec.triton.inputs import RELAYED

log = logging.getLogger("trtspec.unary")


class TritonPythonModel:
    """Reads a decoupled model, which is safe where each answer is one response (see bls.py).

    Not decoupled itself, yet answers later through response senders, so that requests do not wait for each other."""

    def initialize(self, args: Mapping[str, str]) -> None:
        self._front = decided(args)["front"]
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="trtspec-unary")
        self._flights = Flights()
        self._watcher = Watcher(self._flights)

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            answer = Answer(request)
            try:
                self._pool.submit(self._answer, request, answer)
            except RuntimeError as error:  # the pool is closed
                answer.fail(error)

    def finalize(self) -> None:
        self._watcher.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _answer(self, request: Any, answer: Answer) -> None:
        """The outermost layer: a request that ends without an answer would leave its client hanging."""
        try:
            self._relay(request, answer)
        except BaseException as error:
            log.exception("request %r failed", request.request_id())
            answer.fail(error)
        finally:
            if not answer.closed:
                answer.fail(RuntimeError("the request ended without an answer"))

    def _relay(self, request: Any, answer: Answer) -> None:
        stop = any(tensor.name() == "stop" and tensor.as_numpy().any() for tensor in request.inputs())
        if stop and request.request_id() and self._flights.cancel(request.request_id()):
            answer.end(outputs.stopped())
            return
        # A name of ours, so that a cancel meets this request alone.
        name = request.request_id() if stop else f"unary-{uuid.uuid4().hex}"
        wanted = list(request.requested_output_names())
        passed_on = self._passed_on(request, name, wanted)
        with self._flights.open(request.request_id(), answer, lambda: self._cancel(name)):
            for response in passed_on.exec(decoupled=True):
                if response.has_error():
                    answer.fail_as(response.error().message(), "UNAVAILABLE")  # the front itself cannot be reached
                else:
                    _pass_on(response.output_tensors(), wanted, answer)

    def _passed_on(self, request: Any, name: str, wanted: list[str]) -> Any:
        parameters = json.loads(request.parameters() or "{}")
        if parameters.get("id") == request.request_id():
            del parameters["id"]
        return pb_utils.InferenceRequest(
            request_id=name,
            model_name=self._front,
            inputs=[tensor for tensor in request.inputs() if tensor.name() != "stream"],
            requested_output_names=list({*wanted, "status"}),
            parameters={**parameters, RELAYED: request.request_id()},
        )

    def _cancel(self, request_id: str) -> None:
        stop = pb_utils.InferenceRequest(
            request_id=request_id,
            model_name=self._front,
            inputs=[pb_utils.Tensor("stop", np.array([[True]]))],
            requested_output_names=["finish_reason"],
        )
        for _ in stop.exec(decoupled=True):  # an answer or an error: either way it is no longer ours to end
            pass


def _pass_on(tensors: list[Any], wanted: list[str], answer: Answer) -> None:
    """The front's one answer; its errors come as a ``status`` document."""
    for tensor in tensors:
        if tensor.name() == "status":
            document = json.loads(tensor.as_numpy().ravel()[0])
            if "error" in document:
                answer.fail_as(document["error"], document["code"])
    if tensors:
        answer.end_with([tensor for tensor in tensors if tensor.name() in wanted])
