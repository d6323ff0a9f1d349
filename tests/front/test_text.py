from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from trtspec.front.text import StopSearch, StopWatcher, TextStream, stop_checker_factory

EMOJI = "😀"
SAMPLES = [
    "The quick brown fox doesn't stop, does it?",
    "def add(a, b):\n\n    return  a + b\n",
    f"hello {EMOJI}{EMOJI} world 東京 {EMOJI}",
    "Größe   naïve\tcafé Ελλάδα",
    " leading and trailing ",
    "👩‍👩‍👧‍👦 e\u0301 \u202emixed\u202c",
]


def ids_of_bytes(tokenizer: Any, data: bytes) -> list[int]:
    """One token per byte."""
    table = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size - 1, -1, -1)}
    single = {b: i for b, i in table.items() if b is not None and len(b) == 1}
    return [single[bytes([byte])] for byte in data]


def chunkings(ids: Sequence[int], rng: random.Random, count: int) -> Iterator[list[list[int]]]:
    yield [[token] for token in ids]
    yield [list(ids)]
    for _ in range(count):
        pieces, at = [], 0
        while at < len(ids):
            size = rng.randint(1, 5)
            pieces.append(list(ids[at : at + size]))
            at += size
        yield pieces


def stream(tokenizer: Any, chunks: list[list[int]], stop: Sequence[str] = ()) -> list[str]:
    out = TextStream(tokenizer, stop)
    return [*(out.push(chunk) for chunk in chunks), out.finish()]


def random_text(rng: random.Random) -> str:
    alphabet = "abc the  \n.,'東é😀\u00a0ßЖ{}\""
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(1, 60)))


def test_a21_joined_chunks_equal_the_full_decode_for_every_chunking(tokenizer: Any) -> None:
    rng = random.Random(21)
    for text in [*SAMPLES, *(random_text(rng) for _ in range(150))]:
        ids = tokenizer.encode(text, add_special=False)
        whole = tokenizer.decode(ids)
        for chunks in chunkings(ids, rng, 3):
            assert "".join(stream(tokenizer, chunks)) == whole


def test_a21_a_long_stream_keeps_its_spaces_when_the_context_is_trimmed(tokenizer: Any) -> None:
    ids = tokenizer.encode(" ".join(SAMPLES * 8), add_special=False)
    for chunks in chunkings(ids, random.Random(1), 3):
        assert "".join(stream(tokenizer, chunks)) == tokenizer.decode(ids)


def test_any_ids_give_the_same_text_for_every_chunking(tokenizer: Any) -> None:
    rng = random.Random(3)
    for _ in range(150):
        ids = [rng.randrange(tokenizer.vocab_size) for _ in range(rng.randint(1, 40))]
        texts = {"".join(stream(tokenizer, chunks)) for chunks in chunkings(ids, rng, 4)}
        assert len(texts) == 1


def test_any_ids_of_a_byte_level_tokenizer_give_its_own_decode(toy_tokenizers: dict[str, Any]) -> None:
    tokenizer, rng = toy_tokenizers["byte_level"], random.Random(4)
    for _ in range(200):
        ids = [rng.randrange(tokenizer.vocab_size) for _ in range(rng.randint(1, 40))]
        for chunks in chunkings(ids, rng, 2):
            assert "".join(stream(tokenizer, chunks)) == tokenizer.decode(ids)


def test_a20_a_split_emoji_then_a_lone_byte_then_a_letter(byte_tokenizer: Any) -> None:
    ids = ids_of_bytes(byte_tokenizer, EMOJI.encode() + b"\xffa")
    out = TextStream(byte_tokenizer)
    chunks = [out.push(ids[:2]), out.push(ids[2:4]), out.push(ids[4:5]), out.push(ids[5:])]
    assert chunks == ["", EMOJI, "\ufffd", "a"]
    assert out.finish() == ""


def test_a20_any_chunking_gives_emoji_replacement_letter(byte_tokenizer: Any) -> None:
    ids = ids_of_bytes(byte_tokenizer, EMOJI.encode() + b"\xffa")
    for chunks in chunkings(ids, random.Random(20), 20):
        assert "".join(stream(byte_tokenizer, chunks)) == EMOJI + "\ufffda"


def test_a20_ending_inside_a_character_gives_one_replacement_at_the_end(byte_tokenizer: Any) -> None:
    out = TextStream(byte_tokenizer)
    assert [out.push([token]) for token in ids_of_bytes(byte_tokenizer, EMOJI.encode()[:3])] == ["", "", ""]
    assert out.finish() == "\ufffd"


def test_a20_endless_invalid_bytes_do_not_stall(byte_tokenizer: Any) -> None:
    out = TextStream(byte_tokenizer)
    (token,) = ids_of_bytes(byte_tokenizer, b"\xff")
    assert [out.push([token]) for _ in range(50)] == ["\ufffd"] * 50


def test_no_chunk_ends_inside_a_character(byte_tokenizer: Any) -> None:
    text = f"{EMOJI}東é" * 5
    ids = ids_of_bytes(byte_tokenizer, text.encode())
    for chunks in chunkings(ids, random.Random(5), 10):
        assert not any("\ufffd" in chunk for chunk in stream(byte_tokenizer, chunks))


def test_spaces_survive_behind_invalid_bytes(byte_tokenizer: Any) -> None:
    ids = ids_of_bytes(byte_tokenizer, b"\xff") + byte_tokenizer.encode("x hello world", add_special=False)
    for chunks in chunkings(ids, random.Random(6), 5):
        assert "".join(stream(byte_tokenizer, chunks)).endswith("x hello world")


def test_a22_special_tokens_are_not_in_the_text(tokenizer: Any) -> None:
    ids = tokenizer.encode("hello world", add_special=False)
    for chunks in chunkings([0, *ids[:1], 0, *ids[1:], 1], random.Random(22), 5):
        assert "".join(stream(tokenizer, chunks)) == tokenizer.decode(ids)


class CountingTokenizer:
    """Counts the ids that are decoded."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.decoded = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        self.decoded += len(ids)
        return str(self._inner.decode(ids, skip_special))


def test_the_cost_of_a_token_does_not_grow_with_the_text(tokenizer: Any) -> None:
    ids = tokenizer.encode("the quick brown fox " * 400, add_special=False)
    counting = CountingTokenizer(tokenizer)
    stream(counting, [[token] for token in ids])
    assert counting.decoded < 20 * len(ids)


# -- stop strings ------------------------------------------------------------------------------------------------------


def cut(text: str, stops: Sequence[str]) -> str:
    """The rule, by characters: cut before the stop whose last character comes first; of two, the longer."""
    for end in range(1, len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            return text[: end - max(map(len, ended))]
    return text


def test_text_is_cut_before_the_first_stop_for_every_chunking() -> None:
    rng = random.Random(7)
    for _ in range(2000):
        text = "".join(rng.choice("abS") for _ in range(rng.randint(0, 25)))
        stops = ["".join(rng.choice("abS") for _ in range(rng.randint(1, 4))) for _ in range(rng.randint(1, 3))]
        search, shown, at = StopSearch(stops), "", 0
        while at < len(text):
            size = rng.randint(1, 4)
            shown += search.push(text[at : at + size])
            assert cut(text, stops).startswith(shown)
            at += size
        assert shown + search.finish() == cut(text, stops)
        assert (search.found is not None) == (cut(text, stops) != text or any(stop in text for stop in stops))


def test_what_may_become_a_stop_is_held_back_until_decided() -> None:
    search = StopSearch(["STOP"])
    assert [search.push(text) for text in ("a S", "T", "O", "x ST")] == ["a ", "", "", "STOx "]
    assert search.finish() == "ST"


def test_nothing_comes_after_a_stop() -> None:
    search = StopSearch(["S"])
    assert [search.push("abSc"), search.push("d"), search.finish()] == ["ab", "", ""]
    assert search.found == "S"


def test_a13_stop_string_against_token_cap(toy_tokenizers: dict[str, Any]) -> None:
    tokenizer = toy_tokenizers["byte_level"]
    ids = ids_of_bytes(tokenizer, b"abScde")
    out = TextStream(tokenizer, ["S"])
    assert (out.push(ids[:5]), out.finish(), out.stopped) == ("ab", "", "S")
    out = TextStream(tokenizer, ["S"])
    assert (out.push(ids[:2]), out.finish(), out.stopped) == ("ab", "", None)


@pytest.mark.parametrize("stop", ["wor", "o w", "d, the e", "Elephant", "end"])
def test_the_engines_watcher_stops_where_the_text_stops(tokenizer: Any, stop: str) -> None:
    ids = tokenizer.encode("hello hello world world, the end of the world", add_special=False)
    watcher = StopWatcher(tokenizer, [stop])
    stopped_at = next((n for n, token in enumerate(ids) if watcher.push(token)), None)
    whole = tokenizer.decode(ids)
    assert (stopped_at is None) == (stop not in whole)
    emitted = ids if stopped_at is None else ids[: stopped_at + 1]
    for chunks in chunkings(emitted, random.Random(8), 5):
        out = TextStream(tokenizer, [stop])
        shown = "".join(out.push(chunk) for chunk in chunks) + out.finish()
        assert shown == whole.split(stop)[0]
        assert out.stopped == (None if stopped_at is None else stop)
    if stopped_at is not None:
        assert stop not in tokenizer.decode(ids[:stopped_at])


def test_without_stop_strings_no_token_is_decoded(tokenizer: Any) -> None:
    counting = CountingTokenizer(tokenizer)
    checker = stop_checker_factory(counting)(())
    assert not any(checker.push(token) for token in range(10))
    assert counting.decoded == 0
    assert stop_checker_factory(counting)(("x",)).push(tokenizer.encode("x", add_special=False)[-1])
