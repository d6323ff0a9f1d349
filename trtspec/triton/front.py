"""The model ``<name>``: text in, text out. Runs inside tritonserver's Python backend, decoupled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

from trtspec.checkpoints.tokenizer import load_tokenizer
from trtspec.front.front import FrontSettings
from trtspec.triton.answer import Answer
from trtspec.triton.bls import caller
from trtspec.triton.decided import decided
from trtspec.triton.engines.reference import ReferenceEngine
from trtspec.triton.inputs import read_inputs
from trtspec.triton.metrics import Metrics
from trtspec.triton.reception import Reception, tensors
from trtspec.triton.relayed import server_word, take_sign
from trtspec.triton.routes import Routes
from trtspec.triton.service import Service


class TritonPythonModel:
    """``execute`` hands each request to the reception and returns; whatever happens there, the request is answered."""

    def initialize(self, args: Mapping[str, str]) -> None:
        settings = decided(args)
        front = FrontSettings.from_dict(settings["settings"])
        routes = Routes(front)
        self._word = server_word()
        self._service = Service(
            settings=front,
            tokenizer=load_tokenizer(Path(settings["tokenizer"])),
            engine=ReferenceEngine(caller(settings["engine"])),
            routes=routes,
            metrics=Metrics(pb_utils, front, routes.enabled()),
        )
        self._reception = Reception(self._serve)

    def execute(self, requests: list[Any]) -> None:
        self._reception.take(requests)

    def finalize(self) -> None:
        self._service.close()
        self._reception.close()

    def _serve(self, request: Any, request_id: str, parameters: dict[str, Any], answer: Answer) -> None:
        relayed_id, parameters = take_sign(self._word, parameters)
        answer.relayed = relayed_id is not None
        self._service.serve(read_inputs(tensors(request), parameters, request_id, relayed_id), answer, request_id)
