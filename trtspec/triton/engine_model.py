"""The internal model ``<name>__engine``: the reference runtime in a process of its own, behind one JSON tensor."""

from __future__ import annotations

import logging
import os
import queue
import threading
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

log = logging.getLogger("trtspec.engine")
_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """Decoupled. ``execute`` only hands over: it never waits for a step."""

    def initialize(self, args: Mapping[str, str]) -> None:
        self._engine = self.open(decided(args))
        self._outbox = Outbox()

    def open(self, settings: Mapping[str, Any]) -> LocalEngine:
        tokenizer = load_tokenizer(Path(settings["tokenizer"]))
        return LocalEngine.open(EngineOptions.from_dict(settings["options"]), stop_checker_factory(tokenizer))

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            try:
                command = pb_utils.get_input_tensor_by_name(request, "command").as_numpy()[0]
                self._obey(wire.decode(command), sender)
            except Exception as error:  # the last place that can still answer
                log.exception("a command failed")
                message = error.message if isinstance(error, TrtspecError) else f"{type(error).__name__}: {error}"
                self._outbox.put(sender, {"error": message}, True)

    def finalize(self) -> None:
        self._engine.close()
        self._outbox.close()

    def _obey(self, command: Mapping[str, Any], sender: Any) -> None:
        op = command["op"]
        if op == "generate":
            self._generate(command["request"], sender)
            return
        if op == "cancel":
            self._engine.cancel(command["id"])
            answer: dict[str, Any] = {}
        elif op == "status":
            answer = wire.status_to_dict(self._engine.status())
        elif op == "hello":
            answer = wire.hello_to_dict(self._engine.capabilities(), os.getpid())
        else:
            answer = {"error": f"unknown op {op!r}"}
        self._outbox.put(sender, answer, True)

    def _generate(self, data: Mapping[str, Any], sender: Any) -> None:
        request = wire.request_from_dict(data)

        def on_step(step: Step) -> None:
            self._outbox.put(sender, wire.step_to_dict(step), step.finish is not None or step.error is not None)

        try:
            self._engine.submit(request, on_step)
        except (TrtspecError, ValueError) as error:
            on_step(Step(request.id, (), error=str(error)))


class Outbox:
    """Sends events from one thread, in order, so that the engine's own thread never waits for Triton."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Any, dict[str, Any], bool] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name="trtspec-outbox", daemon=True)
        self._thread.start()

    def put(self, sender: Any, event: dict[str, Any], final: bool) -> None:
        self._queue.put((sender, event, final))

    def close(self) -> None:
        """Sends what is waiting, then ends."""
        self._queue.put(None)
        self._thread.join()

    def _loop(self) -> None:
        while (entry := self._queue.get()) is not None:
            try:
                _send(*entry)
            except Exception:  # the front is gone; its request ends by itself, the others go on
                log.exception("an event could not be sent")


def _send(sender: Any, event: dict[str, Any], final: bool) -> None:
    tensor = pb_utils.Tensor("event", np.array([wire.encode(event)], dtype=np.object_))
    sender.send(pb_utils.InferenceResponse(output_tensors=[tensor]), flags=_FINAL if final else 0)
