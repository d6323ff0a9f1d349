"""More requests than anything in between has threads: commands, stops and cancels do not wait behind generations."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.serving.toy_server import MAX_SEQ_LEN, Toy
from tests.triton.asking import Stream, client, post, tensors, until_idle
from trtspec.serving.http_client import HttpServer

LOOP = "xyz" * MAX_SEQ_LEN
MOST = 4000  # tokens each: all of them together take far longer than SOON
SOON = 15.0  # a bound that a loaded machine keeps too, far below what the generations take


@contextmanager
def within(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


@pytest.mark.parametrize("count", [30, 100, 150])
def test_cancelled_plain_infers_end_at_once_however_many(toy: Toy, http: HttpServer, count: int) -> None:
    before = until_idle(http)
    errors: list[Any] = []
    with client(toy) as grpc:
        calls = [
            grpc.async_infer(
                "toy_unary",
                tensors(text_input="L", max_tokens=MOST, route="creative"),
                callback=lambda result, error: errors.append(error),
            )
            for _ in range(count)
        ]
        while (status := http.command("toy", "status"))["active"] < 8 or status["queued"] < count / 2:
            time.sleep(0.01)
        for call in calls:
            call.cancel()
        with within(SOON):
            status = until_idle(http)
            assert post(toy, {"text_input": "L", "max_tokens": 6}, "toy_unary")[1]["text_output"] == "xyzxyz"
    assert len(errors) == count
    assert all("ancel" in str(error) for error in errors)
    assert status["kv_tokens_used"] == 0
    assert status["routes"]["creative"]["emitted"] - before["routes"]["creative"]["emitted"] < 8 * MOST


def test_commands_stops_and_refusals_do_not_wait_behind_streams(toy: Toy, http: HttpServer) -> None:
    until_idle(http)
    count = 90
    with ExitStack() as stack:
        streams = []
        for number in range(count):
            made = stack.enter_context(client(toy))
            fields = {"text_input": "L", "max_tokens": MOST, "route": "creative", "request_id": f"s{number}"}
            streams.append(Stream(made, **fields))
        while (status := http.command("toy", "status"))["active"] + status["queued"] < count:
            time.sleep(0.01)
        with within(SOON):
            assert http.command("toy", "status")["active"] == 8
        with within(SOON):
            assert "max_tokens must be from 1" in post(toy, {"text_input": "L", "max_tokens": 0})[1]["error"]
        with within(SOON):
            assert post(toy, {"stop": True, "id": f"s{count - 1}"})[0] == 200
            assert streams[-1].texts() in ([], [""])
        with ThreadPoolExecutor(16) as pool, ThreadPoolExecutor(16) as enders:
            probes = [pool.submit(http.command, "toy", "probe") for _ in range(16)]
            with within(SOON):
                assert http.command("toy", "status")["queued"] > 60
            with within(2 * SOON):
                list(enders.map(Stream.hang_up, streams))
                assert until_idle(http)["kv_tokens_used"] == 0
            assert all(probe.result()["ready"] for probe in probes)


def test_a24_a_ninth_stream_that_hangs_up_leaves_the_eight_alone(toy: Toy, http: HttpServer) -> None:
    until_idle(http)
    alone = post(toy, {"text_input": "L", "max_tokens": 600, "route": "creative"})[1]["text_output"]
    assert alone == LOOP[:600]
    with ExitStack() as stack:
        makers = [stack.enter_context(client(toy)) for _ in range(9)]
        streams = [Stream(made, text_input="L", max_tokens=600, route="creative") for made in makers[:8]]
        for stream in streams:
            stream.first = stream.next().as_numpy("text_output").ravel()[0].decode()
        ninth = Stream(makers[8], text_input="L", max_tokens=MOST, route="creative")
        time.sleep(0.05)
        ninth.hang_up()
        assert [stream.first + "".join(stream.texts()) for stream in streams] == [alone] * 8
        for stream in streams:
            stream.close()
    status = until_idle(http)
    assert (status["active"], status["kv_tokens_used"]) == (0, 0)


@pytest.mark.parametrize("model", ["toy", "toy_unary"])
def test_a_field_name_that_is_not_utf8_is_refused_and_harms_nobody(toy: Toy, model: str) -> None:
    bad = b'{"text_input": "L", "max_tokens": 2, "\xff": 1}'
    with ThreadPoolExecutor(24) as pool:
        asked = [pool.submit(post, toy, bad, model) for _ in range(24)]
        good = [pool.submit(post, toy, {"text_input": "L", "max_tokens": 3}, model) for _ in range(24)]
        for refused in asked:
            code, answer = refused.result()
            assert (code, answer["error"]) == (400, "an unknown field is not UTF-8: it holds the byte 0xff")
        assert {answer.result()[1]["text_output"] for answer in good} == {"xyz"}


@pytest.mark.parametrize("model", ["toy", "toy_unary"])
@pytest.mark.parametrize("value", [0.5, 1, "x", True])
@pytest.mark.parametrize("name", ["temprature", "trtspec_relayed", "xtrtspec_relayedx"])
def test_unknown_fields_are_refused_by_name_whatever_they_hold(toy: Toy, model: str, name: str, value: Any) -> None:
    code, answer = post(toy, {"text_input": "L", "max_tokens": 2, name: value}, model)
    assert code == 400
    assert f'unknown field "{name}"' in answer["error"]
