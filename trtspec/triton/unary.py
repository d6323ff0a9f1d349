"""The model ``<name>_unary``: a stateless relay to ``<name>`` for clients that ask with a plain ``infer``.

Triton answers such a request to a decoupled model with UNIMPLEMENTED (501 over HTTP).
"""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from trtspec.errors import RequestError
from trtspec.repository.interface import BLS_THREADS, BLS_THREADS_DEFAULT, BLS_THREADS_KEPT
from trtspec.triton import outputs
from trtspec.triton.answer import Answer
from trtspec.triton.decided import decided
from trtspec.triton.flights import Flights, Watcher
from trtspec.triton.inputs import refuse_unknown
from trtspec.triton.reception import Reception
from trtspec.triton.relayed import server_word, sign

log = logging.getLogger("trtspec.unary")


class TritonPythonModel:
    """Reads a decoupled model, which is safe where each answer is one response (see bls.py).

    Not decoupled itself, yet answers later through response senders, so that requests do not wait for each other. Each
    request that the front works on holds one of the threads that Triton makes a model's BLS calls on; fewer requests
    than threads are passed on at once, so that a cancel never waits behind what it should end.
    """

    def initialize(self, args: Mapping[str, str]) -> None:
        self._front = decided(args)["front"]
        self._word = server_word()
        threads = int(os.environ.get(BLS_THREADS, BLS_THREADS_DEFAULT))
        self._pool = ThreadPoolExecutor(max(threads - BLS_THREADS_KEPT, 1), thread_name_prefix="trtspec-unary")
        self._flights = Flights()
        self._watcher = Watcher(self._flights)
        self._reception = Reception(self._serve)

    def execute(self, requests: list[Any]) -> None:
        self._reception.take(requests)

    def finalize(self) -> None:
        self._watcher.close()
        self._reception.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _serve(self, request: Any, request_id: str, parameters: dict[str, Any], answer: Answer) -> None:
        refuse_unknown(parameters, request_id)
        if any(tensor.name() == "stop" and tensor.as_numpy().any() for tensor in request.inputs()):
            self._stop(request_id, answer)
            return
        name = f"unary-{uuid.uuid4().hex}"  # of ours, so that a cancel meets this request alone
        wanted = list(request.requested_output_names())
        passed_on = pb_utils.InferenceRequest(
            request_id=name,
            model_name=self._front,
            inputs=[tensor for tensor in request.inputs() if tensor.name() != "stream"],
            requested_output_names=list({*wanted, "status"}),
            parameters=sign(self._word, request_id),
        )
        waiting: list[Future[None]] = []
        flight = self._flights.add(request_id, answer, lambda: self._cancel(name, answer, waiting))
        waiting.append(self._pool.submit(self._relay, passed_on, wanted, answer))
        waiting[0].add_done_callback(lambda _: self._flights.discard(flight))

    def _stop(self, request_id: str, answer: Answer) -> None:
        """For requests that came through here; the front knows them by other names."""
        if not request_id:
            raise RequestError("stop", "stop needs the id of the request to cancel (triton-request-id)")
        if not self._flights.cancel(request_id):
            self._end_at_front(request_id)
        answer.end(outputs.stopped())

    def _relay(self, passed_on: Any, wanted: list[str], answer: Answer) -> None:
        try:
            for response in passed_on.exec(decoupled=True):
                if response.has_error():
                    answer.fail_as(response.error().message(), "UNAVAILABLE")  # the front itself cannot be reached
                else:
                    _pass_on(response.output_tensors(), wanted, answer)
        except BaseException as error:
            log.exception("a request failed")
            answer.fail(error)
        finally:
            if not answer.closed:  # it would leave its client hanging
                answer.fail(RuntimeError("the request ended without an answer"))

    def _cancel(self, name: str, answer: Answer, waiting: list[Future[None]]) -> None:
        if waiting and waiting[0].cancel():  # the front has not heard of it
            answer.end(outputs.stopped())
        elif waiting:
            self._send_stop(name)

    def _end_at_front(self, request_id: str) -> None:
        """Raises RequestError where the front knows no such request either."""
        refusal = self._send_stop(request_id)
        if refusal is not None:
            raise RequestError("stop", refusal)

    def _send_stop(self, request_id: str) -> str | None:
        """What the front says against it."""
        stop = pb_utils.InferenceRequest(
            request_id=request_id,
            model_name=self._front,
            inputs=[pb_utils.Tensor("stop", np.array([[True]]))],
            requested_output_names=["finish_reason"],
        )
        refusal = None
        for response in stop.exec(decoupled=True):
            if response.has_error():
                refusal = str(response.error().message())
        return refusal


def _pass_on(tensors: list[Any], wanted: list[str], answer: Answer) -> None:
    """The front's one answer; its errors come as a ``status`` document."""
    for tensor in tensors:
        if tensor.name() == "status":
            document = json.loads(tensor.as_numpy().ravel()[0])
            if "error" in document:
                answer.fail_as(document["error"], document["code"])
    if tensors:
        answer.end_with([tensor for tensor in tensors if tensor.name() in wanted])
