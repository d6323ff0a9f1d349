"""The text stream over tokenizers as they are loaded from a model's folder."""

from __future__ import annotations

import random
from pathlib import Path

from tests import toys
from trtspec.checkpoints.tokenizer import load_tokenizer
from trtspec.front.text import TextStream

EMOJI = "😀"


def test_a20_bytes_of_an_emoji_over_two_steps(tmp_path: Path) -> None:
    toys.byte_tokenizer(tmp_path)
    out = TextStream(load_tokenizer(tmp_path))
    data = list(EMOJI.encode() + b"\xffa")
    assert [out.push(data[:2]), out.push(data[2:4]), out.push(data[4:5]), out.push(data[5:])] == [
        "",
        EMOJI,
        "\ufffd",
        "a",
    ]
    out = TextStream(load_tokenizer(tmp_path))
    assert [out.push([byte]) for byte in data[:3]] == ["", "", ""]
    assert out.finish() == "\ufffd"


def test_a21_word_pieces_with_a_leading_space(tmp_path: Path) -> None:
    toys.word_tokenizer(tmp_path, ["▁the", "▁end", "▁", "of", "▁it", "s", "▁of"])
    tokenizer, rng = load_tokenizer(tmp_path), random.Random(21)
    assert tokenizer.decode([3]) == "end"
    for _ in range(200):
        ids = [rng.randrange(2, 9) for _ in range(rng.randint(1, 40))]
        out, at, text = TextStream(tokenizer), 0, ""
        while at < len(ids):
            size = rng.randint(1, 5)
            text += out.push(ids[at : at + size])
            at += size
        assert text + out.finish() == tokenizer.decode(ids)


def test_a22_no_special_tokens_in_the_text(tmp_path: Path) -> None:
    toys.byte_tokenizer(tmp_path)
    out = TextStream(load_tokenizer(tmp_path))
    assert out.push([256, *b"hello", 257]) + out.finish() == "hello"
