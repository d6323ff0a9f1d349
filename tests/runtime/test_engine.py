"""The decoding loop on toy checkpoints. Prompts and seeds are fixed."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
import torch

from tests.runtime.harness import Open, ask, ids, log_probs
from tests.runtime.packed import bigram_checkpoint, chain_table, config, random_checkpoint
from trtspec.errors import CheckpointError, RequestError
from trtspec.runtime.types import EngineRequest, Sampling, Step

PROMPTS = [[random.Random(i).randrange(64) for _ in range(3 + i % 7)] for i in range(20)]
METHODS = ["ngram", "draft_target"]


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_a11_greedy_equality(
    method: str, native: bool, random_pair: tuple[str, str], kernels: str, open_engine: Open
) -> None:
    """Alone and all twenty at once, each with its own draft length."""
    target, draft = random_pair
    library = kernels if native else None
    plain = open_engine(target, kernels=library)
    want = [ids(ask(plain, prompt, 40)) for prompt in PROMPTS]
    engine = open_engine(target, draft if method == "draft_target" else None, method, 6, kernels=library)
    for k in range(1, 7):
        for prompt, tokens in zip(PROMPTS, want, strict=True):
            assert ids(ask(engine, prompt, 40, k)) == tokens
    together = [
        engine.generate(EngineRequest(str(i), prompt, 40, max_draft_len=i % 7)) for i, prompt in enumerate(PROMPTS)
    ]
    assert [ids(list(stream)) for stream in together] == want


@pytest.mark.parametrize("native", [False, True])
def test_a11_a_draft_that_is_the_target_is_always_right(
    native: bool, random_pair: tuple[str, str], kernels: str, open_engine: Open
) -> None:
    engine = open_engine(random_pair[0], random_pair[0], "draft_target", 4, kernels=kernels if native else None)
    for prompt in PROMPTS[:5]:
        steps = ask(engine, prompt, 41, 4)
        assert sum(s.accepted for s in steps) == sum(s.drafted for s in steps) == 32
        assert len(steps) == 9  # the prompt's own token and eight steps of five


def test_bfloat16_rows_do_not_depend_on_their_neighbours(tmp_path: Path, kernels: str, open_engine: Open) -> None:
    """What the native kernels promise: bit-identical ids however many rows share a pass."""
    folder = random_checkpoint(tmp_path, config(hidden_size=64, head_dim=16), 3, torch.bfloat16, scale=0.2)
    want = [ids(ask(open_engine(folder, kernels=kernels), prompt, 40)) for prompt in PROMPTS]
    engine = open_engine(folder, None, "ngram", 6, kernels=kernels)
    streams = [engine.generate(EngineRequest(str(i), p, 40, max_draft_len=6)) for i, p in enumerate(PROMPTS)]
    assert [ids(list(stream)) for stream in streams] == want


def _loop(folder: Path, follows: dict[int, int], vocab: int = 8) -> str:
    return str(bigram_checkpoint(folder, chain_table(vocab, follows)))


@pytest.mark.parametrize("k", [0, 1, 2, 5])
def test_a12_end_token_inside_the_accepted_block(k: int, tmp_path: Path, open_engine: Open) -> None:
    path = _loop(tmp_path, {2: 3, 3: 4, 4: 6, 6: 5, 5: 5})
    engine = open_engine(path, path, "draft_target", 5)
    steps = ask(engine, [2], 20, k, end_ids=frozenset({6}))
    assert ids(steps) == [3, 4, 6]
    assert steps[-1].finish == "stop"
    counted = [s for s in steps if not s.prefill]
    assert sum(len(s.token_ids) for s in counted) == 2
    if k == 5:
        assert [(s.drafted, s.judged, s.accepted) for s in counted] == [(2, 2, 2)]


def test_a12_a_drafted_end_that_the_target_does_not_want(tmp_path: Path, open_engine: Open) -> None:
    target = _loop(tmp_path / "t", {2: 3, 3: 4, 4: 5, 5: 5})
    draft = _loop(tmp_path / "d", {2: 3, 3: 4, 4: 6, 6: 6})
    engine = open_engine(target, draft, "draft_target", 5)
    steps = ask(engine, [2], 6, 5, end_ids=frozenset({6}))
    assert ids(steps) == [3, 4, 5, 5, 5, 5]
    assert steps[-1].finish == "length"


class _Watch:
    """A stop checker over single-letter tokens: id i is the i-th letter."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self.stops, self.text = stops, ""

    def push(self, token_id: int) -> bool:
        self.text += "SabcdeFG"[token_id]
        return any(stop in self.text for stop in self.stops)


@pytest.mark.parametrize(("cap", "want", "finish"), [(5, [1, 2, 0], "stop"), (2, [1, 2], "length")])
@pytest.mark.parametrize("k", [0, 6])
def test_a13_stop_string_against_token_cap(
    k: int, cap: int, want: list[int], finish: str, tmp_path: Path, open_engine: Open
) -> None:
    path = _loop(tmp_path, {7: 1, 1: 2, 2: 0, 0: 3, 3: 4, 4: 5})
    engine = open_engine(path, path, "draft_target", 6, stop=_Watch)
    steps = ask(engine, [7], cap, k, stop=("S",))
    assert (ids(steps), steps[-1].finish) == (want, finish)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cap", range(1, 8))
def test_a14_token_cap_is_exact(method: str, cap: int, tmp_path: Path, open_engine: Open) -> None:
    path = _loop(tmp_path, {2: 3, 3: 2})
    engine = open_engine(path, path if method == "draft_target" else None, method, 5)
    steps = ask(engine, [2, 3, 2], cap, 5)
    assert ids(steps) == [3, 2, 3, 2, 3, 2, 3][:cap]
    assert steps[-1].finish == "length"
    assert all(s.drafted == s.accepted for s in steps)


def test_a17_seeds_in_a_mixed_batch(random_pair: tuple[str, str], open_engine: Open) -> None:
    engine = open_engine(*random_pair, "draft_target", 4)

    def request(name: str, seed: int, k: int = 4) -> EngineRequest:
        return EngineRequest(name, [1, 2, 3], 30, Sampling(temperature=0.8, seed=seed), max_draft_len=k)

    alone = ids(list(engine.generate(request("alone", 42))))
    for round_ in range(5):
        streams = [engine.generate(request("a", 42)), engine.generate(request("b", 1000 + round_, round_ % 5))]
        assert ids(list(streams[0])) == alone
        list(streams[1])
    assert ids(list(engine.generate(request("c", 43)))) != alone
    greedy = [ids(ask(engine, [1, 2, 3], 30, 4, sampling=Sampling(seed=seed))) for seed in (1, 2)]
    assert greedy[0] == greedy[1]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(repetition_penalty=1.5),
        Sampling(presence_penalty=3.0),
        Sampling(frequency_penalty=2.0),
        Sampling(repetition_penalty=1.2, presence_penalty=0.5, frequency_penalty=0.5),
    ],
)
def test_a18_penalties_are_lossless(method: str, sampling: Sampling, tmp_path: Path, open_engine: Open) -> None:
    table = chain_table(8, {2: 3, 3: 2})
    table[2, 4], table[3, 5], table[4, 2], table[5, 3] = 8.0, 7.0, 9.0, 9.0
    path = str(bigram_checkpoint(tmp_path, table))
    plain = ids(ask(open_engine(path), [2, 3], 24, sampling=sampling))
    assert plain != ids(ask(open_engine(path), [2, 3], 24))
    engine = open_engine(path, path if method == "draft_target" else None, method, 5)
    assert ids(ask(engine, [2, 3], 24, 5, sampling=sampling)) == plain


def test_a18_repetition_penalty_by_hand(tmp_path: Path, open_engine: Open) -> None:
    """Loop 2>3>2>3 at logit 10; 10 / 1.5 = 6.67 is under the second choice, 8, from the first repeat on."""
    table = chain_table(8, {2: 3, 3: 2})
    table[2, 4] = table[3, 5] = table[4, 6] = 8.0
    path = str(bigram_checkpoint(tmp_path, table))
    steps = ask(open_engine(path), [2], 3, sampling=Sampling(repetition_penalty=1.5))
    assert ids(steps) == [3, 5, 0]  # 3 -> 2 is in the prompt: 6.67 < 8; nothing follows 5, so the smallest id wins


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0, seed=5), Sampling(repetition_penalty=1.3)])
def test_a19_log_probabilities(
    method: str, sampling: Sampling, random_pair: tuple[str, str], open_engine: Open
) -> None:
    """One per token, of the raw softmax, whatever penalties and speculation do: recomputed from a scoring run."""
    target, draft = random_pair
    engine = open_engine(target, draft if method == "draft_target" else None, method, 4)
    steps = ask(engine, [1, 2, 3, 1, 2], 20, 4, sampling=sampling, return_log_probs=True)
    tokens, values = ids(steps), log_probs(steps)
    assert len(values) == len(tokens) == 20
    assert all(len(s.log_probs or ()) == len(s.token_ids) for s in steps)
    from trtspec.runtime.score import score

    logits = score(engine.options, [1, 2, 3, 1, 2, *tokens], rows=1)
    want = logits.log_softmax(-1)[4:-1].gather(1, torch.tensor(tokens).unsqueeze(1)).squeeze(1)
    assert torch.allclose(torch.tensor(values), want, atol=1e-4)


def test_padding_rows_are_never_chosen_a01(tmp_path: Path, open_engine: Open) -> None:
    table = chain_table(64, {5: 61})
    table[5, 9] = 1.0
    target = str(bigram_checkpoint(tmp_path / "t", table))
    draft = str(bigram_checkpoint(tmp_path / "d", table[:62, :62]))
    for path, other in ((target, draft), (draft, target)):
        engine = open_engine(path, other, "draft_target", 3, vocab_size=60)
        assert ids(ask(engine, [5], 1)) == [9]
        sampled = ids(ask(engine, [5], 100, 3, sampling=Sampling(temperature=3.0, seed=1)))
        assert max(sampled) < 60


def test_a23_lengths_at_the_engine(random_pair: tuple[str, str], open_engine: Open) -> None:
    engine = open_engine(random_pair[0], max_seq_len=16, max_input_len=15)
    assert len(ids(ask(engine, [1] * 15, 50))) == 1
    with pytest.raises(RequestError, match=r"16 tokens.* 15"):
        ask(engine, [1] * 16, 1)
    steps = ask(engine, [1] * 10, 50)
    assert (len(ids(steps)), steps[-1].finish) == (6, "length")


def test_a24_cancel_one_of_three(random_pair: tuple[str, str], open_engine: Open) -> None:
    engine = open_engine(*random_pair, "draft_target", 2, max_seq_len=4096, max_input_len=4095)
    alone = [ids(ask(engine, prompt, 300, 2)) for prompt in PROMPTS[:3]]
    streams = [engine.generate(EngineRequest(str(i), PROMPTS[i], 300, max_draft_len=2)) for i in range(3)]
    next(streams[1])
    engine.cancel("1")
    rest = list(streams[1])
    assert rest[-1].finish == "cancelled"
    assert len(ids(rest)) < 290
    assert [ids(list(streams[0])), ids(list(streams[2]))] == [alone[0], alone[2]]
    status = engine.status()
    assert (status.active, status.queued, status.kv_tokens_used) == (0, 0, 0)


@pytest.mark.parametrize("k", [0, 2])
def test_a24_a_cancel_ends_within_one_step(k: int, random_pair: tuple[str, str], open_engine: Open) -> None:
    """Said between two steps, on the engine's own thread: the next thing that comes is the end."""
    engine = open_engine(*random_pair, "draft_target", 2, max_seq_len=4096, max_input_len=4095)
    seen: list[Step] = []
    ended = threading.Event()

    def receive(step: Step) -> None:
        seen.append(step)
        if len(seen) == 5:
            engine.cancel("x")
        if step.finish is not None:
            ended.set()

    engine.submit(EngineRequest("x", [1], 4000, max_draft_len=k), receive)
    assert ended.wait(60)
    assert len(seen) == 6
    assert (seen[-1].finish, seen[-1].token_ids) == ("cancelled", ())
    assert engine.status().kv_tokens_used == 0


def test_closing_the_stream_cancels(random_pair: tuple[str, str], open_engine: Open) -> None:
    engine = open_engine(random_pair[0], max_seq_len=4096, max_input_len=4095)
    stream = engine.generate(EngineRequest("x", [1], 4000))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    deadline = time.monotonic() + 10
    while engine.status().active and time.monotonic() < deadline:
        time.sleep(0.01)
    assert engine.status().kv_tokens_used == 0


def test_requests_queue_when_memory_or_rows_are_short(random_pair: tuple[str, str], open_engine: Open) -> None:
    """Thirty requests through two rows and the KV memory of one longest request: all end with their own text."""
    plain = open_engine(random_pair[0])
    engine = open_engine(random_pair[0], None, "ngram", 3, max_batch_size=2, kv_tokens=128)
    want = [ids(ask(plain, prompt, 30)) for prompt in PROMPTS]
    streams = [engine.generate(EngineRequest(str(i), p, 30, max_draft_len=3)) for i, p in enumerate(PROMPTS)]
    assert engine.status().kv_tokens_total == 128
    assert [ids(list(stream)) for stream in streams] == want
    assert engine.status().kv_tokens_used == 0


@pytest.mark.parametrize("native", [False, True])
def test_a_long_prompt_is_taken_in_chunks(
    native: bool, random_pair: tuple[str, str], kernels: str, open_engine: Open
) -> None:
    prompt = [random.Random(9).randrange(64) for _ in range(100)]
    library = kernels if native else None
    want = ids(ask(open_engine(random_pair[0], kernels=library), prompt, 20))
    engine = open_engine(*random_pair, "draft_target", 4, max_num_tokens=7, kernels=library)
    assert ids(ask(engine, prompt, 20, 4)) == want


@pytest.mark.parametrize("method", METHODS)
def test_min_tokens_and_bad_words(method: str, tmp_path: Path, open_engine: Open) -> None:
    table = chain_table(8, {2: 3, 3: 6, 6: 2})
    table[3, 4] = 5.0
    table[4, 2] = 9.0
    path = str(bigram_checkpoint(tmp_path, table))
    engine = open_engine(path, path if method == "draft_target" else None, method, 5)
    for k in (0, 5):
        end = frozenset({6})
        assert ids(ask(engine, [2], 20, k, end_ids=end)) == [3, 6]
        assert ids(ask(engine, [2], 20, k, end_ids=end, min_tokens=4)) == [3, 4, 2, 3, 6]
        assert ids(ask(engine, [2], 6, k, bad_words=((3, 6),))) == [3, 4, 2, 3, 4, 2]
        # what the prompt ends with is no part of a word in the output
        assert ids(ask(engine, [2, 3], 1, k, bad_words=((3, 6),))) == [6]
        assert ids(ask(engine, [2], 3, k, bad_words=((3,),)))[0] != 3


def test_a_failing_step_answers_and_the_engine_lives(random_pair: tuple[str, str], open_engine: Open) -> None:
    engine = open_engine(random_pair[0])
    core = engine._core
    forward, core.model.forward = core.model.forward, None  # type: ignore[method-assign,assignment]
    steps = ask(engine, [1, 2], 5)
    assert steps[-1].error is not None and "TypeError" in steps[-1].error
    core.model.forward = forward  # type: ignore[method-assign]
    assert len(ids(ask(engine, [1, 2], 5))) == 5
    assert engine.status().kv_tokens_used == 0


def test_a_receiver_that_raises_is_cancelled(random_pair: tuple[str, str], open_engine: Open) -> None:
    engine = open_engine(random_pair[0])

    def receive(step: Step) -> None:
        raise ConnectionError("gone")

    engine.submit(EngineRequest("x", [1], 100), receive)
    assert len(ids(ask(engine, [1, 2], 20))) == 20
    assert engine.status().active == 0


def test_close_ends_what_is_in_flight(random_pair: tuple[str, str], open_engine: Open) -> None:
    engine = open_engine(random_pair[0], max_seq_len=4096, max_input_len=4095)
    stream = engine.generate(EngineRequest("x", [1], 4000))
    next(stream)
    engine.close()
    assert list(stream)[-1].finish == "cancelled"


def test_what_an_engine_cannot_hold_is_refused(random_pair: tuple[str, str], open_engine: Open) -> None:
    engine = open_engine(random_pair[0], None, "ngram", 4)
    for field, request in {
        "max_draft_len": EngineRequest("x", [1], 5, max_draft_len=10),
        "input_ids": EngineRequest("x", [64], 5),
        "max_tokens": EngineRequest("x", [1], 0),
        "stop": EngineRequest("x", [1], 5, stop=("a",)),
    }.items():
        with pytest.raises(RequestError) as error:
            engine.submit(request, print)
        assert error.value.field == field
    assert engine.status().queued == 0


def test_when_only_an_end_is_left_min_tokens_yields(tmp_path: Path, open_engine: Open) -> None:
    engine = open_engine(_loop(tmp_path, {0: 1, 1: 2, 2: 0}, vocab=4))
    every = tuple((token,) for token in range(4))
    steps = ask(engine, [0], 5, end_ids=frozenset({3}), min_tokens=5, bad_words=every[:3])
    assert (ids(steps), steps[-1].finish) == ([3], "stop")
    steps = ask(engine, [0], 5, bad_words=every)
    assert steps[-1].error is not None and "forbid every token" in steps[-1].error
    assert engine.status().kv_tokens_used == 0
    assert ids(ask(engine, [0], 3)) == [1, 2, 0]


def test_a_draft_of_another_vocabulary_is_refused_at_opening(tmp_path: Path, open_engine: Open) -> None:
    target, draft = _loop(tmp_path / "t", {0: 1}), _loop(tmp_path / "d", {0: 1}, vocab=6)
    for one, other in ((target, draft), (draft, target)):
        with pytest.raises(CheckpointError, match=r"[68] tokens and the target [68]"):
            open_engine(one, other, "draft_target", 2)
    assert ids(ask(open_engine(target, draft, "draft_target", 2, vocab_size=6), [0], 1, 2)) == [1]
