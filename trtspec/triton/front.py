"""The model ``<name>``: text in, text out. Runs inside tritonserver's Python backend, decoupled."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

from trtspec.checkpoints.tokenizer import load_tokenizer
from trtspec.errors import RequestError
from trtspec.front.front import FrontSettings
from trtspec.triton.answer import Answer
from trtspec.triton.bls import caller
from trtspec.triton.decided import decided
from trtspec.triton.engines.reference import ReferenceEngine
from trtspec.triton.inputs import read_inputs
from trtspec.triton.metrics import Metrics
from trtspec.triton.routes import Routes
from trtspec.triton.service import Service

log = logging.getLogger("trtspec.front")

THREADS = 64  # one reads one request's steps, blocked in Triton's iterator; further requests wait their turn


class TritonPythonModel:
    """``execute`` hands each request to a thread and returns; whatever happens there, the request is answered."""

    def initialize(self, args: Mapping[str, str]) -> None:
        settings = decided(args)
        front = FrontSettings.from_dict(settings["settings"])
        routes = Routes(front)
        self._service = Service(
            settings=front,
            tokenizer=load_tokenizer(Path(settings["tokenizer"])),
            engine=ReferenceEngine(caller(settings["engine"])),
            routes=routes,
            metrics=Metrics(pb_utils, front, routes.enabled()),
        )
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="trtspec-front")

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            answer = Answer(request)
            try:
                self._pool.submit(self._answer, request, answer)
            except RuntimeError as error:  # the pool is closed
                answer.fail(error)

    def finalize(self) -> None:
        self._service.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _answer(self, request: Any, answer: Answer) -> None:
        """The outermost layer: a request that ends without an answer would leave its client hanging."""
        try:
            asked = read_inputs(_tensors(request), request.parameters(), request.request_id())
            self._service.serve(asked, answer, request.request_id())
        except RequestError as error:
            answer.fail(error)
        except BaseException as error:
            log.exception("request %r failed", request.request_id())
            answer.fail(error)
        finally:
            if not answer.closed:
                answer.fail(RuntimeError("the request ended without an answer"))


def _tensors(request: Any) -> dict[str, Any]:
    return {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
