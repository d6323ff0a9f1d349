"""What the front does with a request, once read: status, stop, or an answer from the engine step by step."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping
from typing import Any, Protocol

from trtspec.errors import InternalError, RequestError
from trtspec.front.front import Front, FrontSettings, Prepared
from trtspec.front.reply import Reply
from trtspec.front.request import parse_request
from trtspec.front.tokens import Tokenizer
from trtspec.runtime.types import Capabilities, EngineRequest, Step
from trtspec.triton import outputs
from trtspec.triton.engines.reference import ReferenceEngine
from trtspec.triton.flights import Flight, Flights, Watcher
from trtspec.triton.inputs import Asked, in_tensor_words
from trtspec.triton.link import Link
from trtspec.triton.metrics import Metrics
from trtspec.triton.routes import Routes


class Client(Protocol):
    """Where pieces and the end go; see answer.py."""

    def gone(self) -> bool: ...

    def piece(self, outputs: Mapping[str, Any]) -> None: ...

    def end(self, outputs: Mapping[str, Any]) -> None: ...

    def fail(self, error: BaseException) -> None: ...


class Service:
    """Safe to call from several threads; each call blocks until its request has ended."""

    def __init__(
        self,
        *,
        settings: FrontSettings,
        tokenizer: Tokenizer,
        engine: ReferenceEngine,
        routes: Routes,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._tokenizer = tokenizer
        self._engine = engine
        self._routes = routes
        self._metrics = metrics
        self._numbers = itertools.count()  # for requests without an id
        self._flights = Flights()
        self._link = Link(engine, self._open_door)
        self._watcher = Watcher(self._flights, self._link.lost, engine.fail_all)

    def serve(self, asked: Asked, client: Client, request_id: str) -> None:
        """``request_id`` may be empty. Raises what went wrong when nothing has answered the client yet."""
        if asked.stop:
            self._stop(asked, client, request_id)
            return
        self._link.wait()
        if asked.command is not None:
            client.end(outputs.status(self._probe() if asked.command == "probe" else self.status()))
            return
        prepared = self._prepare(asked, request_id)
        engine_id = prepared.engine_request.id
        with self._flights.open(request_id, client, lambda: self._engine.cancel(engine_id)) as flight:
            self._answer(prepared, asked, client, flight)

    def status(self) -> dict[str, Any]:
        settings, engine = self._settings, self._engine.status()
        return {
            "ready": True,
            "name": settings.name,
            "runtime": settings.runtime,
            "method": settings.method,
            **vars(engine),
            "routes": self._routes.to_dict(),
        }

    def close(self) -> None:
        self._watcher.close()
        self._link.close()
        self._engine.close()

    def _probe(self) -> dict[str, Any]:
        """Proves the whole way to a token. Raises when there is none."""
        request = EngineRequest(id=f"probe.{secrets.token_hex(6)}", prompt_ids=(0,), max_tokens=1)
        steps = list(self._engine.generate(request))
        if not steps or steps[-1].error is not None:
            raise InternalError(f"the engine failed on a probe: {steps[-1].error if steps else 'no step came'}")
        return {"ready": True}

    def _open_door(self, capabilities: Capabilities) -> None:
        self._front = Front(self._settings, self._tokenizer, capabilities)

    def _prepare(self, asked: Asked, request_id: str) -> Prepared:
        try:
            request = parse_request(asked.fields, request_id or str(next(self._numbers)))
            return self._front.prepare(request, in_flight=len(self._flights) + 1)
        except RequestError as error:
            raise in_tensor_words(error, asked.given) from error

    def _stop(self, asked: Asked, client: Client, request_id: str) -> None:
        if not request_id:
            raise RequestError("stop", "stop needs the id of the request to cancel (triton-request-id)")
        if self._flights.cancel(request_id) == 0:
            raise RequestError("stop", f"stop: no request with the id {request_id!r} is in flight")
        client.end(outputs.stopped())

    def _answer(self, prepared: Prepared, asked: Asked, client: Client, flight: Flight) -> None:
        reply = Reply(prepared, self._tokenizer)
        echo = self._tokenizer.decode(prepared.engine_request.prompt_ids) if asked.echo else ""
        pending = Pending(prepared.engine_request.return_log_probs, echo)
        try:
            for step in self._engine.generate(prepared.engine_request):
                pending.add(reply.push(step), step)
                flight.step()
                if asked.stream and pending.text and step.finish is None:
                    client.piece(pending.take())
        finally:
            self._routes.record(prepared.route, reply.counts)
            self._metrics.record(prepared.route, reply.counts)
        if reply.finish_reason is None:
            raise InternalError("the engine ended the request without a reason")
        client.end({**pending.take(), **outputs.summary(reply.result())})


class Pending:
    """What has been generated and not been sent."""

    def __init__(self, log_probs: bool, echo: str) -> None:
        self.text = echo
        self._ids: list[int] = []
        self._log_probs: list[float] | None = [] if log_probs else None

    def add(self, chunk: str, step: Step) -> None:
        self.text += chunk
        self._ids += step.token_ids
        if self._log_probs is not None:
            self._log_probs += step.log_probs or ()

    def take(self) -> outputs.Outputs:
        taken = outputs.piece(self.text, self._ids, self._log_probs)
        self.text, self._ids = "", []
        if self._log_probs is not None:
            self._log_probs = []
        return taken
