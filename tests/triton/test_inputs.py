from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trtspec.errors import RequestError
from trtspec.repository.interface import FRONT_INPUTS
from trtspec.triton.inputs import IDENTITIES, IGNORED, OURS, Asked, in_tensor_words, read_inputs
from trtspec.triton.relayed import RELAYED, server_word, sign, take_sign


def read(parameters: dict[str, Any] | None = None, request_id: str = "", **arrays: Any) -> Asked:
    tensors = {name: np.array([entries]) for name, entries in arrays.items()}
    return read_inputs(tensors, parameters or {}, request_id)


def test_names_and_values_become_the_requests_own() -> None:
    asked = read(
        text_input=np.array([b"h\xc3\xa9"], dtype=object),
        stop_words=np.array([b"a", b"", b"b"], dtype=object),
        random_seed=np.array([2**64 - 1], dtype=np.uint64),
        temperature=np.array([0.7], dtype=np.float32),
        stream=np.array([True]),
        exclude_input_in_output=np.array([False]),
    )
    assert asked.fields == {"prompt": "hé", "stop": ["a", "b"], "seed": 2**64 - 1, "temperature": 0.7}
    assert (asked.stream, asked.echo, asked.stop, asked.command) == (True, True, False, None)


@pytest.mark.parametrize("value", [0.1, 0.7, 1e-4, 1.0, 0.95, 3.3333333])
def test_a_32_bit_number_is_read_as_it_was_written(value: float) -> None:
    assert read(top_p=np.array([value], dtype=np.float32)).fields == {"top_p": pytest.approx(value, rel=1e-7)}
    assert read(top_p=np.array([np.float32(0.95)])).fields == {"top_p": 0.95}


def test_parameters_are_unknown_fields_but_for_the_id() -> None:
    assert read({"id": "x"}, "x").fields == {}
    assert read_inputs({}, {}, "unary-1", "y").fields == {"id": "y"}
    with pytest.raises(RequestError, match='unknown field "tempature"; did you mean temperature'):
        read({"tempature": 1})
    with pytest.raises(RequestError, match='unknown field "id"'):
        read({"id": "x"}, "other")


def test_every_input_has_a_meaning() -> None:
    """An identity, the front's own, or a field; none is silently dropped."""
    arrays = {"STRING": [b"1"], "BOOL": [True], "FP32": [0.5], "FP16": [0.5], "INT32": [3], "UINT64": [3]}
    alone = {"random_seed": "seed", "num_draft_tokens": "max_draft_len"}
    for tensor in FRONT_INPUTS:
        array = np.array([arrays[tensor.type]], dtype=object if tensor.type == "STRING" else None)
        if tensor.name in IDENTITIES:
            with pytest.raises(RequestError, match=f"{tensor.name} is not supported"):
                read_inputs({tensor.name: array}, {}, "")
        elif tensor.name not in OURS | IGNORED:
            assert len(read_inputs({tensor.name: array}, {}, "").fields) == 1, (tensor.name, alone)


def test_errors_speak_of_the_tensors() -> None:
    told = in_tensor_words(RequestError("stop", "stop must have at most 64 entries, not 65"), {"stop_words"})
    assert (told.field, told.message) == ("stop_words", "stop_words must have at most 64 entries, not 65")
    told = in_tensor_words(RequestError("prompt", "give exactly one of prompt, messages and input_ids; found none"), ())
    assert told.message == "give exactly one of text_input, messages and input_ids; found none"
    told = in_tensor_words(RequestError("n", "n must be 1, not 2"), {"text_input", "num_return_sequences"})
    assert told.message == "num_return_sequences must be 1, not 2"
    told = in_tensor_words(RequestError("max_draft_len", "max_draft_len must be"), {"max_draft_len"})
    assert told.message == "max_draft_len must be"


def test_only_who_knows_the_servers_word_is_the_relay() -> None:
    word = server_word()
    assert word == server_word()
    assert take_sign(word, sign(word, "mine")) == ("mine", {})
    for said in ("", "mine", ":mine", True):
        assert take_sign(word, {RELAYED: said, "n": 1}) == (None, {RELAYED: said, "n": 1})
    with pytest.raises(RequestError, match='unknown field "trtspec_relayed"'):
        read({RELAYED: "x"})
