"""Tokenizers from GGUF metadata against those they describe: built by Hugging Face's library, or SentencePiece."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from tests.checkpoints.gguf_files import Typed, vocabulary_metadata, write_gguf
from trtspec.checkpoints.pre_tokenizers import PRE_TOKENIZERS
from trtspec.checkpoints.tokenizer import load_tokenizer
from trtspec.errors import CheckpointError

TEXTS = [
    "",
    " ",
    "Hello world, it's 12345 o'clock; I'll WE'LL she'D",
    "  two  spaces\n\n\tand\ttabs \r\n end  ",
    "def f(x):\n    return x**2 + 3.14159e-10\n",
    "héllo wörld naïve e\u0301 日本語テキスト 한국어 🤗👩‍👩‍👧 \u200b",
    "price: $1,000.00 (50%) #hashtag @user <b>&amp;</b>",
    "<|im_start|>user\nhi<|im_end|>\n",
    "١٢٣ ⅷ ½ ²",
    "a" * 300,
]
CORPUS = [*TEXTS, "the there then hello help world word 1234 4567 the the and and return def user " * 5]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def original(pre: str) -> Tokenizer:
    """As the families' tokenizer.json files have it, trained on a few lines."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer = Tokenizer(models.BPE(ignore_merges=pre == "llama-bpe"))
    if pre == "gpt-2":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    elif pre == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    else:
        pattern = LLAMA3 if pre == "llama-bpe" else LLAMA3.replace("{1,3}", "")
        split = pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL])
    return tokenizer


def as_gguf(tokenizer: Tokenizer, file: Path, pre: str, **more: Any) -> Path:
    model = json.loads(tokenizer.to_str())["model"]
    tokens = [tokenizer.id_to_token(index) for index in range(tokenizer.get_vocab_size())]
    types = [3 if token in SPECIAL else 1 for token in tokens]
    tokens += ["[PAD0]", "[PAD1]"]
    types += [5, 5]
    merges = [" ".join(merge) if isinstance(merge, list) else merge for merge in model["merges"]]
    extra = {f"tokenizer.ggml.{key}": value for key, value in more.items()}
    return write_gguf(file, vocabulary_metadata(tokens, types, merges, pre=pre) | extra, {})


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "qwen2"])
def test_byte_level_equals_the_original(tmp_path: Path, pre: str) -> None:
    theirs = original(pre)
    ours = load_tokenizer(as_gguf(theirs, tmp_path / "t.gguf", pre))
    for text in TEXTS:
        expected = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, False) == expected, text
        assert ours.decode(expected, skip_special=False) == theirs.decode(expected, skip_special_tokens=False)
        assert ours.decode(expected) == theirs.decode(expected)
    assert ours.vocab_size == theirs.get_vocab_size(), "rows that only pad are no tokens"


def test_bytes_of_tokens_make_up_the_text(tmp_path: Path) -> None:
    ours = load_tokenizer(as_gguf(original("smollm"), tmp_path / "t.gguf", "smollm"))
    for text in TEXTS:
        assert b"".join(ours.token_bytes(index) or b"?" for index in ours.encode(text, False)) == text.encode()


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("smollm", "ab 123", ["ab", " ", "1", "2", "3"]),
        ("qwen2", "ab 123", ["ab", " ", "1", "2", "3"]),
        ("llama-bpe", "ab 12345", ["ab", " ", "123", "45"]),
        ("gpt-2", "ab 12345", ["ab", " 12345"]),
        ("deepseek-coder", "ab\n 12,", ["ab", "\n", " ", "1", "2", ","]),
        ("tekken", "helloWorld 12/", ["hello", "World", " ", "1", "2", "/"]),
        ("default", "a $12345", ["a", " ", "$", "123", "45"]),
    ],
)
def test_pre_tokenizers_split(pre: str, text: str, pieces: list[str]) -> None:
    steps = [pre_tokenizers.Split(Regex(split), behavior="isolated") for split in PRE_TOKENIZERS[pre].splits]
    assert [piece for piece, _ in pre_tokenizers.Sequence(steps).pre_tokenize_str(text)] == pieces


def test_begin_and_end_follow_the_metadata(tmp_path: Path) -> None:
    theirs = original("llama-bpe")
    begin, end = (Typed(4, theirs.token_to_id(token)) for token in ("<|im_start|>", "<|im_end|>"))
    file = tmp_path / "t.gguf"

    def encoded(pre: str = "llama-bpe", **more: Any) -> list[int]:
        return load_tokenizer(as_gguf(theirs, file, pre, bos_token_id=begin, eos_token_id=end, **more)).encode(
            "a", True
        )

    middle = theirs.encode("a").ids
    assert encoded() == [begin.value, *middle], "llama-bpe begins texts unless told otherwise"
    assert encoded(add_bos_token=False) == middle
    assert encoded(add_eos_token=True) == [begin.value, *middle, end.value]
    assert encoded("gpt-2") == middle
    assert encoded("gpt-2", add_bos_token=True) == [begin.value, *middle]


def test_ends_named_and_known(tmp_path: Path) -> None:
    theirs = original("gpt-2")
    ids = {token: theirs.token_to_id(token) for token in SPECIAL}
    end = Typed(4, ids["<|im_end|>"])
    tokenizer = load_tokenizer(as_gguf(theirs, tmp_path / "t.gguf", "gpt-2", eos_token_id=end))
    assert tokenizer.end_ids == (ids["<|im_end|>"], ids["<|endoftext|>"])
    assert all(tokenizer.is_special(index) for index in ids.values())
    assert not tokenizer.is_special(0)


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"tokenizer.ggml.model": "bert"}, "tokenizer model 'bert' is not read"),
        ({"tokenizer.ggml.pre": "viking"}, "pre-tokenizer 'viking' is not known"),
        ({"tokenizer.ggml.merges": ["a z"]}, "merge 'a' 'z' has no place"),
        ({"tokenizer.ggml.merges": [1, 2]}, "merges is missing"),
        ({"tokenizer.ggml.token_type": ["x", "y", "z"]}, "holds no numbers"),
        ({"tokenizer.ggml.merges": ["ab"]}, "merge 'ab' '' has no place"),
        ({"tokenizer.ggml.tokens": []}, "has no vocabulary"),
        ({"tokenizer.ggml.token_type": [1]}, "not one entry per token"),
    ],
)
def test_what_is_not_read_is_refused_by_name(tmp_path: Path, metadata: dict[str, Any], words: str) -> None:
    whole = vocabulary_metadata(["a", "b", "ab"], [1, 1, 1], ["a b"]) | metadata
    with pytest.raises(CheckpointError, match=words):
        load_tokenizer(write_gguf(tmp_path / "t.gguf", whole, {}))


def test_without_any_vocabulary(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has no vocabulary"):
        load_tokenizer(write_gguf(tmp_path / "t.gguf", {"general.architecture": "llama"}, {}))


GOLDEN = json.loads((Path(__file__).with_name("data") / "sentencepiece.json").read_text())


def sentence_piece_gguf(file: Path, **more: Any) -> Path:
    texts, scores, types = (list(column) for column in zip(*GOLDEN["pieces"], strict=True))
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": [Typed(5, kind) for kind in types],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    return write_gguf(file, metadata | {f"tokenizer.ggml.{key}": value for key, value in more.items()}, {})


def test_sentence_piece_scores_give_its_own_encodings(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(sentence_piece_gguf(tmp_path / "t.gguf"))
    for text, ids in GOLDEN["encodings"]:
        assert tokenizer.encode(text, False) == ids, text
        assert tokenizer.decode(ids) == text.replace("▁", " ")
        assert tokenizer.encode(text, True) == [1, *ids]


def test_sentence_piece_bytes_and_prefix(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(sentence_piece_gguf(tmp_path / "t.gguf", add_space_prefix=False))
    assert tokenizer.decode(tokenizer.encode(" sea", False)) == " sea"
    assert tokenizer.decode(tokenizer.encode("sea", False)) == "sea"
    ids = tokenizer.encode("🤗", False)
    assert b"".join(tokenizer.token_bytes(index) or b"" for index in ids) == "🤗".encode()
    assert tokenizer.token_bytes(3 + 0xFF) == b"\xff"
