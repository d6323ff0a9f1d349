"""Calls another model of the same server, from any thread: Triton's business logic scripting, decoupled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from trtspec.errors import ServeError
from trtspec.triton import wire
from trtspec.triton.engines.reference import Call


def caller(model: str) -> Call:
    """Commands go to ``model`` as one tensor each; its events come back as they are sent."""

    def call(command: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        tensor = pb_utils.Tensor("command", np.array([wire.encode(command)], dtype=np.object_))
        request = pb_utils.InferenceRequest(model_name=model, inputs=[tensor], requested_output_names=["event"])
        for response in request.exec(decoupled=True):
            if response.has_error():
                raise ServeError(f"{model} cannot answer: {response.error().message()}", code="engine_gone")
            for output in response.output_tensors():
                yield wire.decode(output.as_numpy()[0])

    return call
