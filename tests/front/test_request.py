from __future__ import annotations

import json
import math
from typing import Any

import pytest

from trtspec.errors import RequestError
from trtspec.front.request import Message, Request, parse_request


def parse(**fields: Any) -> Request:
    return parse_request({"prompt": "hello", **fields}, "0")


def refusal(**fields: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        parse(**fields)
    return caught.value


def test_defaults() -> None:
    request = parse_request({"prompt": "hello"}, "7", seed=lambda: 99)
    assert request == Request(id="7", seed=99, prompt="hello")
    assert (request.max_tokens, request.min_tokens, request.temperature, request.top_p) == (128, 0, 0.0, 1.0)
    assert (request.speculation, request.route, request.source) == ("auto", None, "prompt")


def test_every_field_arrives() -> None:
    fields = {
        "id": "mine", "max_tokens": 5, "min_tokens": 2, "temperature": 0.7, "top_k": 40, "top_p": 0.9, "min_p": 0.1,
        "repetition_penalty": 1.5, "presence_penalty": -0.5, "frequency_penalty": 0.5, "seed": 3, "ignore_eos": True,
        "return_log_probs": True, "route": "code", "speculation": "on", "max_draft_len": 2,
    }  # fmt: skip
    request = parse(**fields, stop="END", bad_words=["no", "never"], end_id=9)
    assert {name: getattr(request, name) for name in fields} == fields
    assert (request.stop, request.bad_words, request.end_id) == (("END",), ("no", "never"), (9,))


def test_the_three_sources() -> None:
    assert parse_request({"input_ids": [1, 0]}, "0").input_ids == (1, 0)
    request = parse_request({"messages": [{"role": "user", "content": ""}]}, "0")
    assert request.messages == (Message("user", ""),)
    assert (request.prompt, request.source) == (None, "messages")


@pytest.mark.parametrize(
    ("fields", "field", "found"),
    [
        ({}, "prompt", "none of them"),
        ({"prompt": "a", "input_ids": [1]}, "input_ids", "prompt and input_ids"),
        ({"messages": [{"role": "user", "content": "a"}], "prompt": "a"}, "messages", "prompt and messages"),
        ({"prompt": None}, "prompt", "none of them"),
    ],
)
def test_exactly_one_source(fields: dict[str, Any], field: str, found: str) -> None:
    with pytest.raises(RequestError, match=f"exactly one of prompt, messages and input_ids; found {found}") as caught:
        parse_request(fields, "0")
    assert caught.value.field == field


def test_null_means_not_given() -> None:
    assert parse(seed=5, top_k=None, stop=None, route=None, messages=None) == parse(seed=5)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("max_tokens", 0, "from 1 to 2147483647, not 0"),
        ("max_tokens", True, "an integer, not true"),
        ("max_tokens", "5", 'an integer, not "5"'),
        ("max_tokens", 5.0, "an integer, not 5.0"),
        ("max_tokens", 2**63, "not 9223372036854775808"),
        pytest.param("max_tokens", 10**5000, "an integer of 16610 bits", id="max_tokens-too-long-to-print"),
        ("min_tokens", -1, "from 0 to"),
        ("min_tokens", 129, "at most max_tokens \\(128\\), not 129"),
        ("temperature", -0.1, "0 \\(greedy\\) or from 0.0001 to 10000, not -0.1"),
        ("temperature", math.nan, "not NaN"),
        ("temperature", math.inf, "not Infinity"),
        ("temperature", False, "a number.*not false"),
        ("temperature", "1", 'a number.*not "1"'),
        ("temperature", 10**400, "not an integer of"),
        ("temperature", 1e-40, "not 1e-40"),
        ("top_k", -2, "from -1 to 2147483647 \\(-1 and 0 are off\\), not -2"),
        ("top_p", 0, "above 0 and at most 1, not 0"),
        ("top_p", 1.5, "above 0 and at most 1, not 1.5"),
        ("min_p", 1, "at least 0 and below 1, not 1"),
        ("min_p", -0.5, "at least 0 and below 1"),
        ("repetition_penalty", 0, "from 0.01 to 100"),
        ("presence_penalty", 2.1, "from -2 to 2, not 2.1"),
        ("frequency_penalty", -3, "from -2 to 2, not -3"),
        ("seed", -1, "from 0 to 18446744073709551615, not -1"),
        ("seed", 2**64, "not 18446744073709551616"),
        ("stop", "", 'every entry of stop must be a string.*not ""'),
        ("stop", ["a", ""], 'not ""'),
        ("stop", [1], "not 1"),
        ("stop", {"a": 1}, "a string or a list of strings"),
        ("stop", ["x"] * 65, "at most 64 entries, not 65"),
        ("stop", "x" * 1025, "1 to 1024 characters"),
        ("bad_words", 5, "a string or a list"),
        ("ignore_eos", 1, "true or false, not 1"),
        ("return_log_probs", "yes", "true or false"),
        ("route", "", "from 1 to 256 characters, not 0"),
        ("route", 5, "a string, not 5"),
        ("id", 5, "a string, not 5"),
        ("speculation", True, "one of auto, on, off, not true"),
        ("speculation", "maybe", 'not "maybe"'),
        ("speculation", ["on"], "one of auto, on, off"),
        ("max_draft_len", -1, "from 0 to"),
        ("end_id", "5", "token id of 0 or more"),
        ("prompt", 5, "a string, not 5"),
        ("prompt", "half \ud83d", "half a surrogate pair at character 5"),
        ("stop", "\udc00", "half a surrogate"),
    ],
)
def test_a_bad_value_is_refused_with_field_range_and_value(field: str, value: Any, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        parse_request({"prompt": "hello", field: value}, "0")
    assert caught.value.field == field
    assert field in caught.value.message


@pytest.mark.parametrize(
    ("field", "value", "read"),
    [
        ("top_k", -1, 0), ("top_k", 0, 0), ("top_p", 1, 1.0), ("temperature", 0, 0.0), ("seed", 2**64 - 1, 2**64 - 1),
        ("min_p", 0, 0.0), ("stop", [], ()), ("max_draft_len", 0, 0), ("min_tokens", 128, 128),
    ],
)  # fmt: skip
def test_ends_of_the_ranges_are_accepted(field: str, value: Any, read: Any) -> None:
    assert getattr(parse(**{field: value}), field) == read


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "at least one"),
        ("hi", "a list of at least one"),
        (["hi"], r"messages\[0\] must be an object"),
        ([{"role": "user"}], r"messages\[0\] lacks content"),
        ([{"role": "user", "content": 5}], r"messages\[0\].content must be a string, not 5"),
        ([{"role": "user", "content": "a"}, {"role": "robot", "content": "a"}], r"messages\[1\].role must be one of"),
        ([{"role": "user", "content": "a", "name": "x"}], 'unknown key "name"'),
        ([{"role": "user", "content": "\ud800"}], "half a surrogate"),
    ],
)
def test_bad_messages(value: Any, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        parse_request({"messages": value}, "0")
    assert caught.value.field == "messages"


@pytest.mark.parametrize("value", [[], "1 2", [True], [1.0], [-1], [2**63], [None]])
def test_bad_input_ids(value: Any) -> None:
    with pytest.raises(RequestError, match="input_ids") as caught:
        parse_request({"input_ids": value}, "0")
    assert caught.value.field == "input_ids"


def test_an_unknown_field_is_refused_with_the_nearest() -> None:
    error = refusal(max_token=5)
    assert error.field == "max_token"
    assert error.message == 'unknown field "max_token"; did you mean max_tokens?'
    assert "legal fields: bad_words, beam_width" in refusal(zzzz=1).message


@pytest.mark.parametrize("field", ["beam_width", "best_of", "n"])
def test_a07_beams_are_refused_by_name_and_the_identity_accepted(field: str) -> None:
    parse(**{field: 1})
    error = refusal(**{field: 2})
    assert error.field == field
    assert f"{field} must be 1, not 2" in error.message
    assert refusal(**{field: True}).field == field


def test_what_is_no_object_is_refused() -> None:
    data: Any
    for data in ([], "x", 5, None):
        with pytest.raises(RequestError, match="must be a JSON object"):
            parse_request(data, "0")


def test_a17_absent_seeds_are_drawn_and_differ() -> None:
    seeds = {parse().seed for _ in range(8)}
    assert len(seeds) == 8
    assert all(0 <= seed < 2**64 for seed in seeds)


def test_json_numbers_of_any_size_are_answered() -> None:
    data = json.loads('{"prompt": "a", "top_p": 1e999, "max_tokens": -99999999999999999999999999}')
    with pytest.raises(RequestError, match="top_p"):
        parse_request({"prompt": "a", "top_p": data["top_p"]}, "0")
    with pytest.raises(RequestError, match="max_tokens"):
        parse_request({"prompt": "a", "max_tokens": data["max_tokens"]}, "0")
