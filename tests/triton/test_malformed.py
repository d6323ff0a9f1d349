"""Two hundred bad requests over HTTP and gRPC among good ones: each gets its own clear error, nobody else is harmed."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.serving.toy_server import MAX_SEQ_LEN, Toy
from tests.triton.asking import post
from trtspec.serving.http_client import HttpServer

# A field's bad value and what its error must say, beside the field's own name.
BAD: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": 0}, "max_tokens must be from 1"),
    ({"max_tokens": -5}, "max_tokens must be from 1"),
    ({"min_tokens": -1}, "min_tokens must be from 0"),
    ({"min_tokens": 9, "max_tokens": 8}, "min_tokens must be at most max_tokens (8)"),
    ({"temperature": -0.5}, "temperature must be"),
    ({"temperature": 1e30}, "temperature must be"),
    ({"top_k": -2}, "top_k must be from -1"),
    ({"top_p": 0.0}, "top_p must be above 0"),
    ({"top_p": 1.5}, "top_p must be above 0"),
    ({"top_p": -1.0}, "top_p must be above 0"),
    ({"min_p": 1.0}, "min_p must be at least 0"),
    ({"min_p": -0.1}, "min_p must be at least 0"),
    ({"repetition_penalty": 0.0}, "repetition_penalty must be"),
    ({"repetition_penalty": -1.0}, "repetition_penalty must be"),
    ({"presence_penalty": 3.0}, "presence_penalty must be from -2 to 2"),
    ({"frequency_penalty": -2.5}, "frequency_penalty must be from -2 to 2"),
    ({"seed": 1, "random_seed": 1}, "random_seed is another name of seed"),
    ({"max_draft_len": 5}, "max_draft_len must be from 0 to 4"),
    ({"max_draft_len": -1}, "max_draft_len must be from 0"),
    ({"num_draft_tokens": 9}, "num_draft_tokens must be from 0 to 4"),
    ({"num_draft_tokens": 1, "max_draft_len": 1}, "num_draft_tokens is another name of max_draft_len"),
    ({"speculation": "maybe"}, "speculation must be one of auto, on, off"),
    ({"speculation": "on", "route": "creative"}, "never speculate"),
    ({"beam_width": 4}, "beam_width must be 1, not 4"),
    ({"num_return_sequences": 2}, "num_return_sequences must be 1, not 2"),
    ({"length_penalty": 0.3}, "length_penalty is not supported"),
    ({"return_context_logits": True}, "return_context_logits is not supported"),
    ({"return_generation_logits": True}, "return_generation_logits is not supported"),
    ({"lora_task_id": 3}, "lora_task_id is not supported"),
    ({"guided_decoding_guide": "{}"}, "guided_decoding_guide is not supported"),
    ({"embedding_bias_words": "x"}, "embedding_bias_words is not supported"),
    ({"decoder_text_input": "x"}, "decoder_text_input is not supported"),
    ({"input_ids": [1]}, "give exactly one of text_input, messages and input_ids"),
    ({"messages": "[]"}, "messages must be a list of at least one"),
    ({"text_input": ""}, "text_input is empty"),
    ({"text_input": "x" * (MAX_SEQ_LEN + 1)}, f"more than max_seq_len {MAX_SEQ_LEN}"),
    ({"end_id": 5000}, "end_id[0] must be from 0 to 257"),
    ({"command": "shutdown"}, "command must be one of"),
    ({"stop": True, "id": "nobody"}, "no request with the id 'nobody'"),
    ({"stop": True}, "stop needs the id"),
    ({"stop_words": ["x"] * 65}, "at most 64 entries"),
    ({"bad_words": "x" * 1025}, "bad_words must be a string of 1 to 1024"),
    ({"route": "x" * 257}, "route must have from 1 to 256"),
    ({"temprature": 1}, 'unknown field "temprature"; did you mean temperature?'),
    ({"n": 1}, 'unknown field "n"'),
    ({"prompt": "x"}, 'unknown field "prompt"'),
]
# The same without a text_input.
ALONE: list[tuple[dict[str, Any], str]] = [
    ({"messages": "hello"}, "messages must be JSON"),
    ({"messages": "{}"}, "messages must be a list"),
    ({"messages": '[{"role": "user"}]'}, "messages[0] lacks content"),
    ({"messages": '[{"role": "boss", "content": "x"}]'}, "messages[0].role must be one of"),
    ({"messages": '[{"role": "user", "content": 3}]'}, "messages[0].content must be a string"),
    ({"messages": "[" * 100000}, "messages must be JSON"),
    ({"input_ids": [-1]}, "input_ids[0] must be a token id of 0 or more"),
    ({"input_ids": [65, 258]}, "input_ids[1] must be from 0 to 257, not 258"),
    ({"max_tokens": 3}, "give exactly one of text_input, messages and input_ids; found none"),
    ({"input_ids": []}, "input_ids must hold at least one token id"),
]
# What Triton itself refuses before the front sees it: any error will do, as long as it is one.
TRITON: list[bytes] = [
    b"{}",
    b"",
    b"{",
    b"[1, 2]",
    b'"x"',
    b"null",
    b'{"text_input": 5}',
    b'{"text_input": null}',
    b'{"text_input": {"a": 1}}',
    b'{"text_input": ["a", "b"]}',
    b'{"text_input": "a", "text_input": "b"}',
    b'{"text_input": "a", "max_tokens": "3"}',
    b'{"text_input": "a", "max_tokens": 3.7}',
    b'{"text_input": "a", "stream": "yes"}',
    b'{"text_input": "a", "unknown": [1]}',
    b'{"text_input": "a", "unknown": null}',
    b'{"text_input": "a", "input_ids": [[1], [2]]}',
]

Case = tuple[Callable[[Toy], tuple[bool, str]], str]


def over_http(fields: dict[str, Any] | bytes, model: str) -> Callable[[Toy], tuple[bool, str]]:
    """Triton's own refusals have codes of its own choice; ours are the client's fault, 400."""

    def ask(toy: Toy) -> tuple[bool, str]:
        code, answer = post(toy, fields, model)
        return code >= 400 if isinstance(fields, bytes) else code == 400, str(answer and answer.get("error"))

    return ask


def over_grpc(
    tensor: str, raw: bytes, datatype: str, shape: tuple[int, ...] = (1, 1)
) -> Callable[[Toy], tuple[bool, str]]:
    def ask(toy: Toy) -> tuple[bool, str]:
        request = service_pb2.ModelInferRequest(model_name="toy_unary")
        parts = [(tensor, raw, datatype, shape)]
        if tensor not in ("text_input", "messages"):
            parts.append(("text_input", b"\x01\0\0\0L", "BYTES", (1, 1)))
        for name, data, kind, dims in parts:
            request.inputs.add(name=name, datatype=kind, shape=dims)
            request.raw_input_contents.append(data)
        with grpc.insecure_channel(f"127.0.0.1:{toy.grpc_port}") as channel:
            try:
                service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=60)
            except grpc.RpcError as error:
                return error.code() == grpc.StatusCode.INVALID_ARGUMENT, str(error.details())
        return False, "it was answered"

    return ask


GRPC: list[Case] = [
    (over_grpc("text_input", b"\x02\0\0\0\xff\xfe", "BYTES"), "text_input is not UTF-8: byte 0 is 0xff"),
    (over_grpc("messages", b"\x01\0\0\0\x80", "BYTES"), "messages is not UTF-8"),
    (over_grpc("route", b"\x01\0\0\0\x80", "BYTES"), "route is not UTF-8"),
    (over_grpc("text_input", b"\x05\0\0\0a", "BYTES"), "text_input"),
    (over_grpc("text_input", b"", "BYTES"), "text_input"),
    (over_grpc("text_input", b"\xff\xff\xff\xffabc", "BYTES"), "text_input"),
    (over_grpc("text_input", b"\x01\0\0\0a", "BYTES", (1,)), "text_input"),
    (over_grpc("text_input", b"\x01\0\0\0a" * 2, "BYTES", (2, 1)), "batch-size"),
    (over_grpc("text_input", b"abcd", "INT32"), "text_input"),
    (over_grpc("top_p", b"\0\0\xc0\x7f", "FP32"), "top_p must be above 0"),
    (over_grpc("temperature", b"\0\0\x80\x7f", "FP32"), "temperature must be"),
    (over_grpc("min_p", b"\0\0\xc0\xff", "FP32"), "min_p must be"),
    (over_grpc("top_p", b"\0\0", "FP32"), "top_p"),
    (over_grpc("image", b"\0\0\0\0", "FP32"), "image"),
]


def cases() -> list[Case]:
    found: list[Case] = list(GRPC)
    for model in ("toy", "toy_unary"):
        found += [(over_http({"text_input": "L", **fields}, model), said) for fields, said in BAD]
        found += [(over_http(fields, model), said) for fields, said in ALONE]
        found += [(over_http(body, model), "") for body in TRITON]
    found += [(over_http({"text_input": "L", **fields}, "toy"), said) for fields, said in BAD]
    return found


def test_bad_requests_get_their_own_error_and_good_ones_their_answer(toy: Toy, http: HttpServer) -> None:
    bad = cases()
    assert len(bad) >= 200

    def good(number: int) -> str:
        return str(post(toy, {"text_input": "L", "max_tokens": 3 + number % 50})[1]["text_output"])

    with ThreadPoolExecutor(12) as pool:
        pending = [(pool.submit(ask, toy), said, pool.submit(good, number)) for number, (ask, said) in enumerate(bad)]
        wrong = []
        for number, (answer, said, text) in enumerate(pending):
            refused, message = answer.result()
            if not refused or said not in message:
                wrong.append((number, said, message))
            assert text.result() == ("xyz" * 20)[: 3 + number % 50]
    assert not wrong, "\n".join(map(str, wrong))
    assert http.ready()
    assert http.command("toy", "status")["active"] == 0


@pytest.mark.parametrize("path", ["/v2/models/nobody/generate", "/v2/models/toy/generat", "/v2/models/toy/infer"])
def test_a_wrong_address_is_refused(toy: Toy, path: str) -> None:
    connection = http_connection(toy)
    connection.request("POST", path, json.dumps({"text_input": "L"}))
    assert connection.getresponse().status >= 400
    connection.close()


def test_a_client_that_hangs_up_in_the_middle_of_its_request_harms_nobody(toy: Toy, http: HttpServer) -> None:
    for _ in range(3):
        connection = http_connection(toy)
        connection.putrequest("POST", "/v2/models/toy/generate")
        connection.putheader("Content-Length", "1000")
        connection.endheaders(b'{"text_input": "L')
        connection.close()
    assert post(toy, {"text_input": "L", "max_tokens": 3})[1]["text_output"] == "xyz"
    assert http.ready()


def test_identity_values_of_what_is_not_supported_are_accepted(toy: Toy) -> None:
    fields = {
        "text_input": "L", "max_tokens": 3, "beam_width": 1, "num_return_sequences": 1, "length_penalty": 1.0,
        "return_context_logits": False, "return_generation_logits": False, "return_perf_metrics": True,
        "return_num_input_tokens": True, "return_num_output_tokens": True, "use_draft_logits": False,
        "lora_task_id": 0, "guided_decoding_guide": "", "guided_decoding_guide_type": "", "embedding_bias_words": [],
        "bad_words": "", "stop_words": [], "pad_id": 257, "top_k": 0, "repetition_penalty": 1.0,
        "presence_penalty": 0.0, "frequency_penalty": 0.0, "min_tokens": 0, "prompt_vocab_size": 0,
    }  # fmt: skip
    code, answer = post(toy, fields)
    assert (code, answer.get("text_output")) == (200, "xyz"), answer


def http_connection(toy: Toy) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", toy.http_port, timeout=30)
