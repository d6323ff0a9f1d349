"""Calls another model of the same server, from any thread: Triton's business logic scripting.

Never decoupled: with decoupled BLS, opening one response iterator while another's next response arrives can deadlock
the whole process (Triton 2.51, seen: ``ResponseIterator::Next`` holds the iterator's mutex and waits for the GIL,
``GetResponseIterator`` holds the GIL and waits for the map's mutex, the monitor thread holds the map's and waits for
the iterator's).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from trtspec.errors import ServeError
from trtspec.triton import wire
from trtspec.triton.engines.reference import Call


def caller(model: str) -> Call:
    """Commands go to ``model`` as one tensor each, and each gets one answer."""

    def call(command: Mapping[str, Any]) -> dict[str, Any]:
        tensor = pb_utils.Tensor("command", np.array([wire.encode(command)], dtype=np.object_))
        request = pb_utils.InferenceRequest(model_name=model, inputs=[tensor], requested_output_names=["event"])
        response = request.exec()
        if response.has_error():
            raise ServeError(f"{model} cannot answer: {response.error().message()}", code="engine_gone")
        return wire.decode(response.output_tensors()[0].as_numpy()[0])

    return call
