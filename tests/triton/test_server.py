"""The front in a real tritonserver, asked by plain Triton clients."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tritonclient.utils import InferenceServerException

from tests.serving.toy_server import DRAFT_LEN, EMOJI, END, MAX_SEQ_LEN, Toy, after
from tests.triton.asking import Stream, client, post, tensors, until_idle
from trtspec.serving.http_client import HttpServer

LOOP = "xyz" * MAX_SEQ_LEN


def test_a09_a_plain_request_is_answered_once_and_completely(toy: Toy) -> None:
    code, answer = post(toy, {"text_input": "L", "max_tokens": 9})
    assert code == 200
    assert answer["text_output"] == "xyzxyzxyz"
    assert answer["output_ids"] == after("L", 9)
    assert (answer["finish_reason"], answer["num_input_tokens"], answer["num_output_tokens"]) == ("length", 1, 9)


def test_a09_streaming_through_the_plain_endpoint_is_refused_by_name(toy: Toy) -> None:
    code, answer = post(toy, {"text_input": "L", "max_tokens": 60, "stream": True})
    assert "generate stream" in answer["error"], code


def test_a09_a_plain_infer_is_answered_by_the_unary_model_and_refused_by_the_decoupled(toy: Toy) -> None:
    with client(toy) as grpc:
        answer = grpc.infer("toy_unary", tensors(text_input="L", max_tokens=6))
        assert answer.as_numpy("text_output").ravel()[0] == b"xyzxyz"
        assert answer.as_numpy("output_ids").shape == (1, 1, 6)
        with pytest.raises(InferenceServerException, match="decoupled"):
            grpc.infer("toy", tensors(text_input="L", max_tokens=6))


@pytest.mark.parametrize("model", ["toy", "toy_unary"])
def test_only_the_outputs_asked_for_come(toy: Toy, model: str) -> None:
    with client(toy) as grpc:
        wanted = [_output("text_output"), _output("num_output_tokens")]
        if model == "toy_unary":
            found = grpc.infer(model, tensors(text_input="L", max_tokens=3), outputs=wanted)
            names = [output.name for output in found.get_response().outputs]
            assert sorted(names) == ["num_output_tokens", "text_output"]
    assert post(toy, {"text_input": "L", "max_tokens": 3}, model)[0] == 200


def _output(name: str) -> Any:
    import tritonclient.grpc as grpcclient

    return grpcclient.InferRequestedOutput(name)


def test_a21_streamed_chunks_join_to_the_whole_text_and_end_once(toy: Toy) -> None:
    with client(toy) as grpc:
        stream = Stream(grpc, text_input="L", max_tokens=40)
        texts, ends = [], 0
        while True:
            result = stream.next()
            ends += result.as_numpy("finish_reason") is not None
            if result.as_numpy("text_output") is not None:
                texts.append(result.as_numpy("text_output").ravel()[0].decode())
            if result.get_response().parameters["triton_final_response"].bool_param:
                break
        stream.close()
    assert "".join(texts) == LOOP[:40]
    assert ends == 1
    assert 40 / (DRAFT_LEN + 1) <= len(texts) < 40  # a step's tokens go out as one response
    assert all(texts)


@pytest.mark.parametrize("stream", [True, False])
def test_a20_characters_are_never_split(toy: Toy, http: HttpServer, stream: bool) -> None:
    if stream:
        responses = list(http.stream("toy", {"text_input": "E"}))
        texts = [response["text_output"] for response in responses if "text_output" in response]
        assert [text for text in texts if EMOJI[0] in text], "the emoji comes in one piece"
    else:
        texts = [post(toy, {"text_input": "E"})[1]["text_output"]]
    assert "".join(texts) == EMOJI + "\ufffd" + "a"


def test_a20_an_unfinished_character_is_one_replacement(toy: Toy) -> None:
    answer = post(toy, {"text_input": "P"})[1]
    assert answer["text_output"] == "\ufffd"
    assert answer["output_ids"] == [0xF1, 0x8F, 0x88, END]


@pytest.mark.parametrize(("cap", "text", "reason"), [(5, "qr", "stop"), (2, "qr", "length")])
def test_a13_stop_string_against_the_cap(toy: Toy, cap: int, text: str, reason: str) -> None:
    answer = post(toy, {"text_input": "p", "max_tokens": cap, "stop_words": ["S"]})[1]
    assert (answer["text_output"], answer["finish_reason"]) == (text, reason)


def test_a22_no_echo_unless_asked_for(toy: Toy) -> None:
    plain = post(toy, {"text_input": "Lxyzx", "max_tokens": 5})[1]
    echoed = post(toy, {"text_input": "Lxyzx", "max_tokens": 5, "exclude_input_in_output": False})[1]
    assert plain["text_output"] == "yzxyz"
    assert echoed["text_output"] == "Lxyzxyzxyz"
    assert plain["num_output_tokens"] == echoed["num_output_tokens"] == 5


def test_messages_go_through_the_chat_template(toy: Toy) -> None:
    messages = json.dumps([{"role": "user", "content": "L"}])
    answer = post(toy, {"messages": messages, "max_tokens": 4})[1]
    assert answer["num_input_tokens"] == len("user:L") + 1 + len("assistant:")  # the end token is one


@pytest.mark.parametrize("field", ["beam_width", "num_return_sequences"])
def test_a07_beams_are_refused_by_name_and_harm_nobody(toy: Toy, field: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        good = pool.submit(post, toy, {"text_input": "L", "max_tokens": 400})
        code, answer = post(toy, {"text_input": "L", "max_tokens": 4, field: 2})
        assert code == 400
        assert "must be 1, not 2" in answer["error"]
        assert good.result()[1]["text_output"] == LOOP[:400]
    assert post(toy, {"text_input": "L", "max_tokens": 4, field: 1})[0] == 200


def test_a23_prompts_at_and_above_the_limit(toy: Toy, http: HttpServer) -> None:
    code, answer = post(toy, {"input_ids": [ord("x")] * (MAX_SEQ_LEN - 1), "max_tokens": 10})
    assert (code, answer["num_output_tokens"], answer["finish_reason"]) == (200, 1, "length")
    for tokens in (MAX_SEQ_LEN, MAX_SEQ_LEN + 1):
        code, answer = post(toy, {"input_ids": [ord("x")] * tokens, "max_tokens": 10})
        assert code == 400
        assert str(tokens) in answer["error"]
        assert str(MAX_SEQ_LEN) in answer["error"]
    assert post(toy, {"text_input": "L", "top_k": -1, "max_tokens": 1})[0] == 200
    code, answer = post(toy, {"text_input": "L", "top_p": 1.5})
    assert code == 400
    assert "top_p" in answer["error"]
    assert post(toy, {"text_input": "L", "max_tokens": 3})[1]["text_output"] == "xyz"
    assert http.ready()


def test_a24_cancel_one_of_three(toy: Toy, http: HttpServer) -> None:
    before = until_idle(http)
    tokens = 2000
    with client(toy) as one, client(toy) as two, client(toy) as three:
        routes = ("creative", "code", "creative")  # the one that is cancelled is counted alone
        streams = [
            Stream(grpc, text_input="L", max_tokens=tokens, route=route, speculation="off")
            for grpc, route in zip((one, two, three), routes, strict=True)
        ]
        received = 0
        while received < 20:
            received += streams[1].next().as_numpy("output_ids").size
        streams[1].hang_up()
        received += streams[1].rest()
        for stream in (streams[0], streams[2]):
            assert "".join(stream.texts()) == LOOP[:tokens]
            stream.close()
    after_all = until_idle(http)
    assert after_all["kv_tokens_used"] == before["kv_tokens_used"] == 0
    emitted = {
        route: after_all["routes"][route]["emitted"] - before["routes"][route]["emitted"]
        for route in ("code", "creative")
    }
    assert emitted["creative"] == 2 * (tokens - 1)
    # How long the news takes depends on the machine; that a cancel ends within one step is tested on the engine.
    assert received - 1 <= emitted["code"] < tokens // 4


def test_a24_a_cancelled_plain_infer_leaves_nothing_running(toy: Toy, http: HttpServer) -> None:
    until_idle(http)
    done: list[Any] = []
    with client(toy) as grpc:
        fields = tensors(text_input="L", max_tokens=4000, route="creative")
        call = grpc.async_infer("toy_unary", fields, callback=lambda result, error: done.append(error))
        while http.command("toy", "status")["active"] == 0:
            assert not done
        call.cancel()
        emitted = until_idle(http)["routes"]["creative"]["emitted"]
    assert until_idle(http)["routes"]["creative"]["emitted"] == emitted
    assert "ancel" in str(done[0])


def test_stop_cancels_the_request_of_that_id(toy: Toy) -> None:
    with client(toy) as grpc:
        stream = Stream(grpc, text_input="L", max_tokens=4000, route="creative", request_id="mine")
        stream.next()
        code, answer = post(toy, {"id": "mine", "stop": True})
        assert (code, answer["finish_reason"]) == (200, "cancelled")
        assert len("".join(stream.texts())) < 3999
        stream.close()
    code, answer = post(toy, {"id": "mine", "stop": True})
    assert code == 400
    assert "no request with the id 'mine'" in answer["error"]


def test_stop_reaches_a_plain_infer_through_the_unary_model(toy: Toy, http: HttpServer) -> None:
    fields = {"id": "plain", "text_input": "L", "max_tokens": 4000, "route": "creative"}
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(post, toy, fields, "toy_unary")
        while http.command("toy", "status")["active"] == 0:
            assert not asked.done()
        code, answer = post(toy, {"id": "plain", "stop": True}, "toy_unary")
        assert (code, answer["finish_reason"]) == (200, "cancelled")
        code, answer = asked.result()
    assert (code, answer["finish_reason"]) == (200, "cancelled")
    assert answer["num_output_tokens"] < 4000


def test_32_streams_at_once_each_get_their_own_answer(toy: Toy) -> None:
    def one(number: int) -> str:
        with client(toy) as grpc:
            stream = Stream(grpc, text_input="L" if number % 2 else "p", max_tokens=20 + number)
            text = "".join(stream.texts())
            stream.close()
            return text

    with ThreadPoolExecutor(32) as pool:
        texts = list(pool.map(one, range(32)))
    assert texts == [LOOP[: 20 + number] if number % 2 else "qrScde" for number in range(32)]


def test_speculation_off_gives_the_same_text(toy: Toy) -> None:
    on, off = (
        post(toy, {"text_input": "L", "max_tokens": 50, "route": "code", "speculation": word})[1]
        for word in ("on", "off")
    )
    assert on["output_ids"] == off["output_ids"]
    assert json.loads(on["speculation"])["accepted"] > 20
    assert json.loads(off["speculation"])["drafted"] is None
    assert (off["total_draft_tokens"], "acceptance_rate" in off) == (0, False)
    code, answer = post(toy, {"text_input": "L", "route": "creative", "speculation": "on"})
    assert code == 400
    assert "never speculate" in answer["error"]


def test_seeds_decide_a_sampled_answer(toy: Toy) -> None:
    def sampled(**seed: int) -> Any:
        return post(toy, {"text_input": "L", "max_tokens": 40, "temperature": 4.0, **seed})[1]["output_ids"]

    assert sampled(seed=7) == sampled(random_seed=7)
    assert sampled(seed=7) != sampled(seed=8)
    assert sampled() != sampled()


def test_log_probs_come_for_every_token(toy: Toy) -> None:
    answer = post(toy, {"text_input": "L", "max_tokens": 7, "return_log_probs": True})[1]
    assert len(answer["output_log_probs"]) == 7
    assert all(-0.2 < value < 0 for value in answer["output_log_probs"])
    assert "output_log_probs" not in post(toy, {"text_input": "L", "max_tokens": 7})[1]


def test_an_unknown_route_is_default_and_says_so(toy: Toy) -> None:
    details = json.loads(post(toy, {"text_input": "L", "max_tokens": 2, "route": "nowhere"})[1]["details"])
    assert (details["route"], details["route_requested"]) == ("default", "nowhere")
