"""The internal model ``<name>__engine``: the reference runtime in a process of its own, behind one JSON tensor."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from trtspec.checkpoints.tokenizer import load_tokenizer
from trtspec.errors import TrtspecError
from trtspec.front.text import stop_checker_factory
from trtspec.runtime.engine import LocalEngine
from trtspec.runtime.options import EngineOptions
from trtspec.runtime.types import Step
from trtspec.triton import wire
from trtspec.triton.decided import decided
from trtspec.triton.mailbox import Mailbox

log = logging.getLogger("trtspec.engine")
_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """Not decoupled (see bls.py): each command gets one answer, and steps are pulled, those of all requests at once.

    ``execute`` only hands over: it never waits for a step.
    """

    def initialize(self, args: Mapping[str, str]) -> None:
        settings = decided(args)
        tokenizer = load_tokenizer(Path(settings["tokenizer"]))
        options = EngineOptions.from_dict(settings["options"])
        self._engine = LocalEngine.open(options, stop_checker_factory(tokenizer))
        self._mailbox = Mailbox(_send)

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            try:
                command = pb_utils.get_input_tensor_by_name(request, "command").as_numpy()[0]
                answer = self._obey(wire.decode(command), sender)
            except Exception as error:  # the last place that can still answer
                log.exception("a command failed")
                answer = {
                    "error": error.message if isinstance(error, TrtspecError) else f"{type(error).__name__}: {error}"
                }
            if answer is not None:
                _send(sender, answer)

    def finalize(self) -> None:
        self._engine.close()
        self._mailbox.close()

    def _obey(self, command: Mapping[str, Any], sender: Any) -> dict[str, Any] | None:
        """The answer; None for a pull, which the mailbox answers."""
        op = command["op"]
        if op == "pull":
            self._mailbox.pull(sender)
            return None
        if op == "generate":
            self._engine.submit(wire.request_from_dict(command["request"]), self._on_step)
            return {}
        if op == "cancel":
            self._engine.cancel(command["id"])
            return {}
        if op == "status":
            return wire.status_to_dict(self._engine.status())
        if op == "hello":
            return wire.hello_to_dict(self._engine.capabilities(), os.getpid())
        return {"error": f"unknown op {op!r}"}

    def _on_step(self, step: Step) -> None:
        self._mailbox.put(wire.step_to_dict(step))


def _send(sender: Any, answer: dict[str, Any]) -> None:
    tensor = pb_utils.Tensor("event", np.array([wire.encode(answer)], dtype=np.object_))
    sender.send(pb_utils.InferenceResponse(output_tensors=[tensor]), flags=_FINAL)
