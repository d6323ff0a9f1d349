from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from trtspec.errors import CheckpointError, RequestError
from trtspec.front.front import Front, FrontSettings, OffWhen, Prepared, RouteSettings
from trtspec.front.request import parse_request
from trtspec.runtime.types import Capabilities

SETTINGS = FrontSettings(
    name="toy",
    runtime="reference",
    method="ngram",
    max_draft_len=4,
    max_seq_len=64,
    max_input_len=63,
    max_batch_size=8,
    routes={
        "default": RouteSettings(),
        "code": RouteSettings("code", "always", 2),
        "creative": RouteSettings("creative", "never"),
    },
)


def front(tokenizer: Any, **changes: Any) -> Front:
    settings = replace(SETTINGS, **changes)
    sizes = (settings.max_seq_len, settings.max_input_len, settings.max_batch_size)
    return Front(settings, tokenizer, Capabilities("ngram", 4, "rejection", *sizes, tokenizer.vocab_size))


def prepare(tokenizer: Any, changes: dict[str, Any] | None = None, **fields: Any) -> Prepared:
    data = fields if {"messages", "input_ids", "prompt"} & fields.keys() else {"prompt": "hello", **fields}
    return front(tokenizer, **(changes or {})).prepare(parse_request(data, "0", seed=lambda: 11))


def refusal(tokenizer: Any, changes: dict[str, Any] | None = None, **fields: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        prepare(tokenizer, changes, **fields)
    return caught.value


@pytest.fixture
def toy(toy_tokenizers: dict[str, Any]) -> Any:
    return toy_tokenizers["metaspace_bpe"]


def test_settings_survive_json() -> None:
    settings = replace(SETTINGS, off_when=OffWhen(batch_above=3))
    assert FrontSettings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings


# -- tokens ------------------------------------------------------------------------------------------------------------


def test_a_prompt_gets_the_tokenizers_own_begin_token_once(toy: Any) -> None:
    assert prepare(toy, prompt="hello").engine_request.prompt_ids == (0, *toy.encode("hello", add_special=False))


def test_messages_get_no_second_begin_token(toy: Any) -> None:
    ids = prepare(toy, messages=[{"role": "user", "content": "hello"}]).engine_request.prompt_ids
    assert list(ids) == toy.encode("<begin>user: hello\nassistant: ", add_special=False)
    assert ids.count(0) == 1


def test_input_ids_are_taken_as_they_are_and_checked(toy: Any) -> None:
    assert prepare(toy, input_ids=[5, 1, 0]).engine_request.prompt_ids == (5, 1, 0)
    size = toy.vocab_size
    error = refusal(toy, input_ids=[5, size])
    assert (error.field, error.message) == ("input_ids", f"input_ids[1] must be from 0 to {size - 1}, not {size}")


def test_messages_without_a_chat_template_are_refused(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy, "chat_template", None)
    assert refusal(toy, messages=[{"role": "user", "content": "a"}]).field == "messages"


def test_what_a_template_refuses_is_the_requests_error(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def render(messages: Any, add_generation_prompt: bool = True) -> str:
        raise CheckpointError("the template raised: roles must alternate")

    monkeypatch.setattr(toy, "render_chat", render)
    error = refusal(toy, messages=[{"role": "user", "content": "a"}])
    assert (error.field, error.message) == ("messages", "the template raised: roles must alternate")


@pytest.mark.parametrize("size", [1, 15])
def test_a23_a_prompt_below_the_limit_has_room(toy: Any, size: int) -> None:
    prepared = prepare(toy, {"max_seq_len": 16, "max_input_len": 15}, input_ids=[5] * size)
    assert prepared.engine_request.max_tokens == 16 - size


def test_a23_at_the_limit_nothing_is_left_to_generate(toy: Any) -> None:
    error = refusal(toy, {"max_seq_len": 16, "max_input_len": 15}, input_ids=[5] * 16)
    assert error.message == "input_ids has 16 tokens and max_seq_len is 16: nothing is left to generate"
    assert error.hint == "send at most 15 tokens"


def test_a23_above_the_limit_both_numbers_are_named(toy: Any) -> None:
    error = refusal(toy, {"max_seq_len": 16, "max_input_len": 15}, input_ids=[5] * 17)
    assert error.message == "input_ids has 17 tokens, more than max_seq_len 16"


def test_the_input_limit_binds_below_the_sequence_limit(toy: Any) -> None:
    error = refusal(toy, {"max_seq_len": 16, "max_input_len": 8}, input_ids=[5] * 9)
    assert error.message == "input_ids has 9 tokens, more than max_input_len 8"


def test_more_tokens_than_fit_are_no_error(toy: Any) -> None:
    request = prepare(toy, {"max_seq_len": 16, "max_input_len": 15}, input_ids=[5] * 10, max_tokens=99).engine_request
    assert request.max_tokens == 6
    both = {"input_ids": [5] * 10, "max_tokens": 99, "min_tokens": 50}
    assert prepare(toy, {"max_seq_len": 16, "max_input_len": 15}, **both).engine_request.min_tokens == 6


def test_a_prompt_of_no_tokens_is_refused(toy_tokenizers: dict[str, Any]) -> None:
    assert "is empty" in refusal(toy_tokenizers["byte_level"], prompt="").message
    assert prepare(toy_tokenizers["metaspace_bpe"], prompt="").prompt_tokens == 1  # its begin token


# -- routes and speculation --------------------------------------------------------------------------------------------


def test_an_unknown_route_is_the_default_and_is_reported(toy: Any) -> None:
    prepared = prepare(toy, route="nope")
    assert (prepared.route, prepared.route_requested) == ("default", "nope")
    assert (prepare(toy).route, prepare(toy).route_requested) == ("default", None)
    assert (prepare(toy, route="code").route, prepare(toy, route="code").route_requested) == ("code", "code")


@pytest.mark.parametrize(
    ("fields", "enabled", "draft_len", "reason"),
    [
        ({}, True, 4, 'route "default" is unmeasured: on until measured'),
        ({"speculation": "on"}, True, 4, "the request asks for speculation"),
        ({"speculation": "off"}, False, 0, "the request switches speculation off"),
        ({"route": "code"}, True, 2, 'route "code" always speculates'),
        ({"route": "code", "speculation": "off"}, False, 0, "the request switches speculation off"),
        ({"route": "creative"}, False, 0, 'route "creative" never speculates'),
        ({"route": "creative", "speculation": "off"}, False, 0, "the request switches speculation off"),
        ({"max_draft_len": 3}, True, 3, 'route "default" is unmeasured: on until measured'),
        ({"max_draft_len": 0}, False, 0, "max_draft_len is 0"),
        ({"max_draft_len": 0, "speculation": "on"}, False, 0, "max_draft_len is 0"),
    ],
)
def test_precedence(toy: Any, fields: dict[str, Any], enabled: bool, draft_len: int, reason: str) -> None:
    prepared = prepare(toy, **fields)
    assert (prepared.decision.enabled, prepared.decision.reason) == (enabled, reason)
    assert prepared.decision.max_draft_len == prepared.engine_request.max_draft_len == draft_len


def test_on_against_never_is_an_error(toy: Any) -> None:
    error = refusal(toy, route="creative", speculation="on")
    assert (error.field, 'route "creative"' in error.message) == ("speculation", True)


def test_on_without_a_method_is_an_error(toy: Any) -> None:
    none = {"method": "none", "max_draft_len": 0}
    assert refusal(toy, none, speculation="on").field == "speculation"
    assert prepare(toy, none).decision.reason == "built without speculation (method none)"


def test_a03_a_draft_length_above_what_was_built_is_refused_with_both_numbers(toy: Any) -> None:
    error = refusal(toy, max_draft_len=10)
    assert error.field == "max_draft_len"
    assert error.message == "max_draft_len must be from 0 to 4 (method ngram drafts at most 4), not 10"
    assert prepare(toy, max_draft_len=4).decision.max_draft_len == 4
    assert not prepare(toy, max_draft_len=0).decision.enabled
    assert 'route "code" drafts at most 2' in refusal(toy, route="code", max_draft_len=3).message
    assert refusal(toy, max_draft_len=10, speculation="off").field == "max_draft_len"


@pytest.mark.parametrize(
    ("bounds", "fields", "in_flight", "off"),
    [
        (OffWhen(batch_above=2), {}, 2, False),
        (OffWhen(batch_above=2), {}, 3, True),
        (OffWhen(prompt_tokens_above=2), {"input_ids": [5, 5]}, 1, False),
        (OffWhen(prompt_tokens_above=2), {"input_ids": [5, 5, 5]}, 1, True),
        (OffWhen(temperature_above=0.5), {"temperature": 0.5}, 1, False),
        (OffWhen(temperature_above=0.5), {"temperature": 0.6}, 1, True),
        (OffWhen(max_tokens_below=8), {"max_tokens": 8}, 1, False),
        (OffWhen(max_tokens_below=8), {"max_tokens": 7}, 1, True),
    ],
)
def test_off_when(toy: Any, bounds: OffWhen, fields: dict[str, Any], in_flight: int, off: bool) -> None:
    door = front(toy, off_when=bounds)
    data = fields if "input_ids" in fields else {"prompt": "a", **fields}
    decision = door.prepare(parse_request(data, "0"), in_flight).decision
    assert decision.enabled is not off
    assert ("off_when." in decision.reason) is off
    assert door.prepare(parse_request({**data, "speculation": "on"}, "0"), in_flight).decision.enabled
    assert door.prepare(parse_request({**data, "route": "code"}, "0"), in_flight).decision.enabled


# -- ends, words, sampling ---------------------------------------------------------------------------------------------


def test_end_ids(toy: Any) -> None:
    assert prepare(toy).engine_request.end_ids == frozenset({1})
    assert prepare(toy, ignore_eos=True).engine_request.end_ids == frozenset()
    assert prepare(toy, end_id=7).engine_request.end_ids == frozenset({7})
    assert refusal(toy, end_id=toy.vocab_size).field == "end_id"


def test_a_stop_string_that_is_a_special_token_is_an_end_id(toy: Any) -> None:
    request = prepare(toy, stop=["<begin>", "x"]).engine_request
    assert (request.stop, request.end_ids) == (("x",), frozenset({0, 1}))


def test_bad_words_are_caught_with_and_without_a_leading_space(tokenizer: Any) -> None:
    sequences = prepare(tokenizer, bad_words=["world"]).engine_request.bad_words
    for text in ("world", "hello world", "the\nworld", "hello hello world"):
        ids = tokenizer.encode(text, add_special=False)
        runs = {tuple(ids[at : at + len(word)]) for word in sequences for at in range(len(ids))}
        assert runs & set(sequences), text
    assert all(tokenizer.decode(word).strip() == "world" for word in sequences)


def test_sampling_and_the_rest_arrive(toy: Any) -> None:
    prepared = prepare(toy, temperature=0.5, top_k=3, min_p=0.1, max_tokens=9, min_tokens=2, return_log_probs=True)
    request = prepared.engine_request
    assert (request.sampling.temperature, request.sampling.top_k, request.sampling.min_p) == (0.5, 3, 0.1)
    assert (request.max_tokens, request.min_tokens, request.return_log_probs) == (9, 2, True)
    assert prepared.seed == request.sampling.seed == 11


def test_two_requests_of_one_id_are_two_for_the_engine(toy: Any) -> None:
    one, two = prepare(toy, id="same"), prepare(toy, id="same")
    assert one.id == two.id == "same"
    assert one.engine_request.id != two.engine_request.id
