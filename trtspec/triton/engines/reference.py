"""Our own runtime, held by the internal model ``<name>__engine`` and reached over BLS."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trtspec.errors import ServeError
from trtspec.runtime.types import Capabilities, EngineRequest, EngineStatus, Step
from trtspec.triton import wire

# Sends one command to the engine's model and yields its events. Raises ServeError when the engine cannot be reached.
Call = Callable[[Mapping[str, Any]], Iterator[dict[str, Any]]]


@dataclass(frozen=True)
class Hello:
    capabilities: Capabilities
    pid: int  # of the process that holds the engine


class ReferenceEngine:
    """Implements ``runtime.types.Engine``. A caller blocks in ``generate`` until the next step comes."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def hello(self) -> Hello:
        answer = self._ask({"op": "hello"})
        return Hello(wire.capabilities_from_dict(answer["capabilities"]), answer["pid"])

    def capabilities(self) -> Capabilities:
        return self.hello().capabilities

    def generate(self, request: EngineRequest) -> Iterator[Step]:
        ended = False
        try:
            for event in self._call({"op": "generate", "request": wire.request_to_dict(request)}):
                step = wire.step_from_dict(event)
                ended = step.finish is not None or step.error is not None
                yield step
        finally:
            if not ended:
                self.cancel(request.id)

    def cancel(self, request_id: str) -> None:
        self._ask({"op": "cancel", "id": request_id})

    def status(self) -> EngineStatus:
        return wire.status_from_dict(self._ask({"op": "status"}))

    def _ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        for event in self._call(command):
            if "error" in event:
                raise ServeError(f"the engine answered {command['op']} with: {event['error']}", code="engine_error")
            return event
        raise ServeError(f"the engine gave no answer to {command['op']}", code="engine_silent")
