"""Our own runtime, held by the internal model ``<name>__engine`` and reached over BLS."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trtspec.errors import ServeError
from trtspec.runtime.types import Capabilities, EngineRequest, EngineStatus, Step
from trtspec.triton import wire

log = logging.getLogger("trtspec.front")

# Sends one command to the engine's model and returns its answer. Raises ServeError when it cannot be reached.
Call = Callable[[Mapping[str, Any]], dict[str, Any]]
Take = Callable[[Step | ServeError], None]  # what becomes of a step; an error is the last


@dataclass(frozen=True)
class Hello:
    capabilities: Capabilities
    pid: int  # of the process that holds the engine


class ReferenceEngine:
    """Implements ``runtime.types.Engine``. One thread pulls the steps of all requests and hands them out.

    So the cost of the way is paid once for a step of the whole batch, and no caller blocks inside Triton, nor needs a
    thread of its own.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._takers: dict[str, Take] = {}
        self._wake = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._loop, name="trtspec-puller", daemon=True)
        self._thread.start()

    def hello(self) -> Hello:
        answer = self._ask({"op": "hello"})
        return Hello(wire.capabilities_from_dict(answer["capabilities"]), answer["pid"])

    def capabilities(self) -> Capabilities:
        return self.hello().capabilities

    def generate(self, request: EngineRequest) -> Iterator[Step]:
        inbox: queue.SimpleQueue[Step | ServeError] = queue.SimpleQueue()
        ended = False
        try:
            self.submit(request, inbox.put)
            while not ended:
                step = inbox.get()
                if isinstance(step, ServeError):
                    ended = True
                    raise step
                ended = step.finish is not None or step.error is not None
                yield step
        finally:
            if not ended and self._forget(request.id):
                self.cancel(request.id)

    def submit(self, request: EngineRequest, take: Take) -> None:
        """``take`` gets the steps on the puller's thread, and must not wait. Raises when the engine refuses."""
        with self._wake:
            self._takers[request.id] = take
            self._wake.notify()
        try:
            self._ask({"op": "generate", "request": wire.request_to_dict(request)})
        except BaseException:
            self._forget(request.id)
            raise

    def cancel(self, request_id: str) -> None:
        self._ask({"op": "cancel", "id": request_id})

    def status(self) -> EngineStatus:
        return wire.status_from_dict(self._ask({"op": "status"}))

    def fail_all(self, reason: str) -> None:
        """Ends every request in flight with an error; for when the engine is known to be gone."""
        with self._wake:
            takers, self._takers = list(self._takers.values()), {}
        for take in takers:
            take(ServeError(reason, code="engine_gone"))

    def close(self) -> None:
        with self._wake:
            self._closing = True
            self._wake.notify()

    def _ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        answer = self._call(command)
        if "error" in answer:
            raise ServeError(f"the engine answered {command['op']} with: {answer['error']}", code="engine_error")
        return answer

    def _loop(self) -> None:
        """Pulls only while a request is in flight, so that an idle server has nothing to wait for when it stops."""
        while self._wait_for_work():
            try:
                events = self._ask({"op": "pull"})["events"]
            except Exception as error:
                log.exception("the engine's steps cannot be read")
                self.fail_all(f"the engine's steps cannot be read: {error}")
                continue
            for event in events:
                self._hand_out(wire.step_from_dict(event))

    def _wait_for_work(self) -> bool:
        with self._wake:
            while not self._takers and not self._closing:
                self._wake.wait()
            return not self._closing

    def _hand_out(self, step: Step) -> None:
        ended = step.finish is not None or step.error is not None
        with self._wake:
            take = self._takers.pop(step.request_id, None) if ended else self._takers.get(step.request_id)
        if take is not None:  # else its reader has gone, and has cancelled it
            take(step)

    def _forget(self, request_id: str) -> bool:
        """Whether its steps were still waited for."""
        with self._wake:
            return self._takers.pop(request_id, None) is not None
