"""The front's side of the engine, and the engine's mailbox, without a server between them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from trtspec.errors import ServeError
from trtspec.runtime.types import Capabilities, EngineRequest, EngineStatus, Sampling, Step
from trtspec.triton import wire
from trtspec.triton.engines.reference import ReferenceEngine
from trtspec.triton.mailbox import PULL_SECONDS, Mailbox

CAPABILITIES = Capabilities("ngram", 4, "rejection", 64, 63, 8, 258)
REQUEST = EngineRequest(
    "a", (1, 2), 5, Sampling(temperature=0.5, seed=2**64 - 1), 1, frozenset({7, 3}), ("S",), ((1, 2), (3,)), True, 4
)


class FakeModel:
    """Answers commands as the engine's model does; the test says which steps come."""

    def __init__(self) -> None:
        self.steps: queue.SimpleQueue[list[Step]] = queue.SimpleQueue()
        self.cancelled: list[str] = []
        self.started: list[EngineRequest] = []

    def __call__(self, command: Mapping[str, Any]) -> dict[str, Any]:
        command = wire.decode(wire.encode(command))
        if command["op"] == "hello":
            return wire.hello_to_dict(CAPABILITIES, 42)
        if command["op"] == "status":
            return wire.status_to_dict(EngineStatus(1, 2, 3, 4))
        if command["op"] == "cancel":
            self.cancelled.append(command["id"])
            return {}
        if command["op"] == "generate":
            self.started.append(wire.request_from_dict(command["request"]))
            return {"error": "no room"} if command["request"]["id"] == "refused" else {}
        try:
            steps = self.steps.get(timeout=0.05)
        except queue.Empty:
            return {"events": []}
        return wire.decode(wire.encode({"events": [wire.step_to_dict(step) for step in steps]}))


@pytest.fixture
def model() -> FakeModel:
    return FakeModel()


@pytest.fixture
def engine(model: FakeModel) -> Any:
    made = ReferenceEngine(model)
    yield made
    made.close()


def test_requests_and_steps_survive_the_wire() -> None:
    assert wire.request_from_dict(wire.decode(wire.encode(wire.request_to_dict(REQUEST)))) == REQUEST
    for step in (
        Step("a", (1, 2), (-0.5, -1.0), 4, 2, 1, False, "stop"),
        Step("a", (), error="broken"),
        Step("a", (9,), prefill=True),
    ):
        assert wire.step_from_dict(wire.decode(wire.encode(wire.step_to_dict(step)))) == step


def test_steps_of_one_pull_go_to_their_own_requests(engine: ReferenceEngine, model: FakeModel) -> None:
    one, two = (engine.generate(EngineRequest(name, (1,), 3)) for name in "ab")
    model.steps.put([Step("a", (1,)), Step("b", (2,)), Step("a", (3,), finish="stop"), Step("c", (9,))])
    first = next(one)
    model.steps.put([Step("b", (2,)), Step("b", (4,), finish="length")])
    assert [first.token_ids, *(step.token_ids for step in one)] == [(1,), (3,)]
    assert [step.token_ids for step in two] == [(2,), (4,)]
    assert model.cancelled == []


def test_closing_the_iterator_cancels(engine: ReferenceEngine, model: FakeModel) -> None:
    steps = engine.generate(EngineRequest("a", (1,), 3))
    model.steps.put([Step("a", (1,))])
    next(steps)
    steps.close()  # type: ignore[attr-defined]
    assert model.cancelled == ["a"]


def test_a_refused_request_raises_and_waits_for_nothing(engine: ReferenceEngine) -> None:
    with pytest.raises(ServeError, match="no room"):
        list(engine.generate(EngineRequest("refused", (1,), 3)))


def test_a_lost_engine_ends_every_reader(engine: ReferenceEngine, model: FakeModel) -> None:
    steps = engine.generate(EngineRequest("a", (1,), 3))
    model.steps.put([Step("a", (1,))])
    next(steps)
    engine.fail_all("it died")
    with pytest.raises(ServeError, match="it died"):
        next(steps)
    assert model.cancelled == []  # nobody is there to be told


def test_hello_and_status(engine: ReferenceEngine) -> None:
    assert (engine.hello().pid, engine.capabilities()) == (42, CAPABILITIES)
    assert engine.status() == EngineStatus(1, 2, 3, 4)


def test_the_mailbox_answers_a_pull_with_all_that_waits_and_never_forgets_one() -> None:
    sent: queue.SimpleQueue[tuple[str, list[Any]]] = queue.SimpleQueue()
    mailbox = Mailbox(lambda sender, answer: sent.put((sender, answer["events"])))
    mailbox.put({"n": 1})
    mailbox.put({"n": 2})
    mailbox.pull("first")
    assert sent.get(timeout=5) == ("first", [{"n": 1}, {"n": 2}])
    mailbox.pull("second")
    mailbox.put({"n": 3})
    assert sent.get(timeout=5) == ("second", [{"n": 3}])
    mailbox.pull("third")
    assert sent.get(timeout=PULL_SECONDS + 5) == ("third", [])
    mailbox.pull("older")
    mailbox.pull("newer")
    assert sent.get(timeout=5) == ("older", [])
    closing = threading.Thread(target=mailbox.close)
    closing.start()
    assert sent.get(timeout=5) == ("newer", [])
    closing.join(timeout=5)
    assert not closing.is_alive()
