from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from trtspec.errors import InternalError
from trtspec.front.decision import Decision
from trtspec.front.front import Prepared
from trtspec.front.reply import Reply
from trtspec.runtime.types import EngineRequest, Sampling, Step


def prepared(draft_len: int = 4, **fields: Any) -> Prepared:
    request = EngineRequest("r.1", (5, 6, 7), 16, Sampling(seed=3), max_draft_len=draft_len, **fields)
    decision = Decision(draft_len > 0, "because", draft_len)
    return Prepared("r", request, "default", "nope", decision, "ngram", "rejection")


def ticking(*times: float) -> Callable[[], float]:
    left = iter(times)
    return lambda: next(left)


@pytest.fixture
def toy(toy_tokenizers: dict[str, Any]) -> Any:
    return toy_tokenizers["byte_level"]


def bytes_ids(tokenizer: Any, text: str) -> tuple[int, ...]:
    table = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size)}
    return tuple(table[bytes([byte])] for byte in text.encode())


def test_the_document(toy: Any) -> None:
    reply = Reply(prepared(return_log_probs=True), toy, ticking(10.0, 10.5, 12.0, 12.5))
    first, rest = bytes_ids(toy, "a"), bytes_ids(toy, "bcd")
    chunks = [
        reply.push(Step("r.1", first, (-0.5,), prefill=True)),
        reply.push(Step("r.1", rest, (-1.0, -2.0, -3.0), drafted=4, judged=3, accepted=2)),
        reply.push(Step("r.1", (1,), (-0.1,), drafted=1, judged=1, accepted=0, finish="stop")),
    ]
    assert chunks == ["a", "bcd", ""]
    document = json.loads(json.dumps(reply.result()))
    assert document == {
        "id": "r",
        "text": "abcd",
        "token_ids": [*first, *rest, 1],
        "finish_reason": "stop",
        "usage": {"prompt_tokens": 3, "completion_tokens": 5},
        "route": "default",
        "route_requested": "nope",
        "seed": 3,
        "log_probs": [-0.5, -1.0, -2.0, -3.0, -0.1],
        "speculation": {
            "enabled": True,
            "method": "ngram",
            "max_draft_len": 4,
            "acceptance": "rejection",
            "reason": "because",
            "steps": 2,
            "drafted": 5,
            "judged": 4,
            "accepted": 2,
            "emitted": 4,
            "acceptance_rate": 0.4,
            "token_acceptance": 0.5,
            "acceptance_length": 2.0,
            "per_position": [0.5, 1.0, 0.0, 0.0],
            "per_position_conditional": [0.5, 1.0, 0.0, None],
            "accepted_length_histogram": [1, 0, 1, 0, 0],
        },
        "timing": {"ttft_s": 0.5, "total_s": 2.5, "tokens_per_s": 2.0},
    }


def test_plain_decoding_has_nulls_and_no_log_probs(toy: Any) -> None:
    reply = Reply(prepared(0), toy, ticking(0.0, 1.0, 2.0))
    reply.push(Step("r.1", bytes_ids(toy, "a"), prefill=True))
    reply.push(Step("r.1", bytes_ids(toy, "b"), finish="length"))
    document = reply.result()
    assert document["log_probs"] is None
    speculation = document["speculation"]
    assert (speculation["enabled"], speculation["steps"], speculation["emitted"]) == (False, 1, 1)
    for key in ("drafted", "judged", "accepted", "acceptance_rate", "per_position", "accepted_length_histogram"):
        assert speculation[key] is None


def test_one_token_has_no_rate(toy: Any) -> None:
    reply = Reply(prepared(), toy, ticking(0.0, 1.0))
    reply.push(Step("r.1", bytes_ids(toy, "a"), prefill=True, finish="length"))
    assert reply.result()["timing"] == {"ttft_s": 1.0, "total_s": 1.0, "tokens_per_s": None}


def test_a13_ids_keep_the_stop_token_and_the_text_does_not(toy: Any) -> None:
    reply = Reply(prepared(stop=("S",)), toy)
    ids = bytes_ids(toy, "abS")
    assert reply.push(Step("r.1", ids, drafted=6, judged=2, accepted=2, finish="stop")) == "ab"
    document = reply.result()
    assert (document["text"], document["token_ids"], document["finish_reason"]) == ("ab", list(ids), "stop")
    assert document["usage"]["completion_tokens"] == 3


def test_the_last_chunk_brings_what_was_held_back(toy: Any) -> None:
    reply = Reply(prepared(stop=("bcX",)), toy)
    chunks = [reply.push(Step("r.1", bytes_ids(toy, "abc"), finish=None))]
    chunks.append(reply.push(Step("r.1", (), finish="cancelled")))
    assert chunks == ["a", "bc"]
    assert (reply.finish_reason, reply.counts.steps) == ("cancelled", 1)


def test_a_request_cancelled_before_its_first_token(toy: Any) -> None:
    reply = Reply(prepared(), toy, ticking(0.0, 1.0))
    reply.push(Step("r.1", (), finish="cancelled"))
    assert reply.result()["timing"] == {"ttft_s": None, "total_s": 1.0, "tokens_per_s": None}
    assert reply.result()["text"] == ""


def test_an_engines_error_is_raised(toy: Any) -> None:
    with pytest.raises(InternalError, match="out of memory"):
        Reply(prepared(), toy).push(Step("r.1", (), error="out of memory"))
