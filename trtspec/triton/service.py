"""What the front does with a request, once read: status, stop, or an answer from the engine step by step."""

from __future__ import annotations

import functools
import itertools
import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from trtspec.errors import InternalError, RequestError, ServeError, TrtspecError
from trtspec.front.front import Front, FrontSettings, Prepared
from trtspec.front.reply import Reply
from trtspec.front.request import parse_request
from trtspec.front.tokens import Tokenizer
from trtspec.runtime.types import Capabilities, EngineRequest, Step
from trtspec.triton import outputs
from trtspec.triton.engines.reference import ReferenceEngine
from trtspec.triton.flights import Flight, Flights, Watcher
from trtspec.triton.inputs import Asked, in_tensor_words
from trtspec.triton.lanes import Lanes
from trtspec.triton.link import Link
from trtspec.triton.metrics import Metrics
from trtspec.triton.routes import Routes

log = logging.getLogger("trtspec.front")


class Client(Protocol):
    """Where pieces and the end go; see answer.py."""

    def gone(self) -> bool: ...

    def piece(self, outputs: Mapping[str, Any]) -> None: ...

    def end(self, outputs: Mapping[str, Any]) -> None: ...

    def fail(self, error: BaseException) -> None: ...


class Service:
    """Safe to call from several threads. No call waits for a generation: its steps are worked off on lanes."""

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
        self._lanes = Lanes()
        self._link = Link(engine, self._open_door)
        self._watcher = Watcher(self._flights, self._link.lost, engine.fail_all)

    def serve(self, asked: Asked, client: Client, request_id: str) -> None:
        """``request_id`` may be empty. What it raises is the client's answer; else the client is or will be ended."""
        if asked.stop:
            self._stop(asked, client, request_id)
            return
        self._link.wait()
        if asked.command is not None:
            self._command(asked.command, client)
            return
        self._generate(self._prepare(asked, request_id), asked, client, request_id)

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
        self._lanes.close()

    def _command(self, command: str, client: Client) -> None:
        if command == "probe":
            self._probe(client)
        else:
            client.end(outputs.status(self.status()))

    def _probe(self, client: Client) -> None:
        """Proves the whole way to a token. The client fails when there is none."""

        def take(step: Step | ServeError) -> None:
            if isinstance(step, ServeError):
                client.fail(step)
            elif step.error is not None:
                client.fail(InternalError(f"the engine failed on a probe: {step.error}"))
            elif step.finish is not None:
                client.end(outputs.status({"ready": True}))

        lane = self._lanes.pick()
        request = EngineRequest(id=f"probe.{secrets.token_hex(6)}", prompt_ids=(0,), max_tokens=1)
        self._engine.submit(request, lambda step: lane(lambda: take(step)))

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

    def _generate(self, prepared: Prepared, asked: Asked, client: Client, request_id: str) -> None:
        request, lane = prepared.engine_request, self._lanes.pick()
        echo = self._tokenizer.decode(request.prompt_ids) if asked.echo else ""
        reply = Reply(prepared, self._tokenizer)
        flight = self._flights.add(request_id, client, lambda: self._engine.cancel(request.id))

        def ended() -> None:
            self._flights.discard(flight)
            self._routes.record(prepared.route, reply.counts)
            self._metrics.record(prepared.route, reply.counts)

        one = Generation(reply, Pending(request.return_log_probs, echo), client, flight, asked.stream, ended)
        try:
            self._engine.submit(request, lambda step: lane(lambda: one.take(step)))
        except BaseException as error:
            lane(functools.partial(one.fail, error))


class Generation:
    """One request whose steps come. All calls come from its lane; ``ended`` is called once, before the client's end."""

    def __init__(
        self, reply: Reply, pending: Pending, client: Client, flight: Flight, stream: bool, ended: Callable[[], None]
    ) -> None:
        self._reply = reply
        self._pending = pending
        self._client = client
        self._flight = flight
        self._stream = stream
        self._ended = ended
        self._over = False

    def take(self, step: Step | ServeError) -> None:
        if self._over:
            return
        try:
            if isinstance(step, ServeError):
                self.fail(step)
            else:
                self._push(step)
        except BaseException as error:  # a request that ends without an answer would leave its client hanging
            if not isinstance(error, TrtspecError):
                log.exception("a request failed")
            self.fail(error)
            self._flight.cancel()

    def fail(self, error: BaseException) -> None:
        self._end()
        self._client.fail(error)

    def _push(self, step: Step) -> None:
        reply, pending = self._reply, self._pending
        pending.add(reply.push(step), step)
        if step.finish is not None:
            self._end()
            self._client.end({**pending.take(), **outputs.summary(reply.result())})
            return
        self._flight.step()
        if self._stream and pending.text:
            self._client.piece(pending.take())

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._ended()


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
