"""Small real tokenizers of each kind, trained on a few lines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest
import tokenizers as hf
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

TEXT = [
    "def add(a, b):\n    return a + b\n",
    "The quick brown fox jumps over the lazy dog. It doesn't stop, does it?",
    '{"name": "Ada", "tags": ["x", "y"], "age": 36}',
    "Größe, naïve café, Ελλάδα, Москва, 東京, مرحبا",
    "hello hello world world, the end of the world",
] * 3
END = "<end>"


class ToyTokenizer:
    """The front's Tokenizer over a tokenizers.Tokenizer whose id 0 is the begin and 1 the end token."""

    end_ids = (1,)
    chat_template: str | None = "toy"

    def __init__(self, inner: hf.Tokenizer, bytes_of: dict[int, bytes], *, begins: bool = False) -> None:
        self._inner = inner
        self._bytes = bytes_of
        self._begins = begins

    @property
    def vocab_size(self) -> int:
        return int(self._inner.get_vocab_size())

    def encode(self, text: str, add_special: bool) -> list[int]:
        ids = list(self._inner.encode(text, add_special_tokens=False).ids)
        return [0, *ids] if add_special and self._begins else ids

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        return str(self._inner.decode(list(ids), skip_special_tokens=skip_special))

    def token_bytes(self, id: int) -> bytes | None:
        return self._bytes.get(id)

    def is_special(self, id: int) -> bool:
        return id in (0, 1)

    def render_chat(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True) -> str:
        turns = "".join(f"{message['role']}: {message['content']}\n" for message in messages)
        return "<begin>" + turns + ("assistant: " if add_generation_prompt else "")


SPECIALS = ["<begin>", END]


def byte_level() -> ToyTokenizer:
    inner = hf.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(TEXT, trainer)
    table = {character: byte for byte, character in byte_alphabet().items()}
    return ToyTokenizer(
        inner,
        {i: bytes(table[c] for c in token) for token, i in inner.get_vocab().items() if token not in SPECIALS},
    )


def byte_alphabet() -> dict[int, str]:
    """GPT-2's printable stand-in for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + n) for n, b in enumerate(hidden)}}


def fallback(model: hf.models.Model, trainer: trainers.Trainer) -> ToyTokenizer:
    """SentencePiece style: a word mark for spaces, one added in front, bytes for what the vocabulary lacks."""
    inner = hf.Tokenizer(model)
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    inner.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    inner.train_from_iterator(TEXT, trainer)
    return ToyTokenizer(inner, fallback_bytes(inner), begins=True)


def fallback_bytes(inner: hf.Tokenizer) -> dict[int, bytes]:
    table = {}
    for token, i in inner.get_vocab().items():
        if token not in SPECIALS:
            byte = token.startswith("<0x") and len(token) == 6
            table[i] = bytes([int(token[3:5], 16)]) if byte else token.replace("▁", " ").encode()
    return table


BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def metaspace_bpe() -> ToyTokenizer:
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=[*SPECIALS, "<unk>"], limit_alphabet=40, show_progress=False
    )
    trained = fallback(models.BPE(unk_token="<unk>", byte_fallback=True), trainer)
    return with_byte_tokens(trained)


def with_byte_tokens(trained: ToyTokenizer) -> ToyTokenizer:
    """The trained BPE with 256 byte tokens behind its vocabulary, as a SentencePiece conversion writes them."""
    state = json.loads(trained._inner.to_str())
    vocab = state["model"]["vocab"]
    for token in BYTES:
        vocab[token] = len(vocab)
    inner = hf.Tokenizer.from_str(json.dumps(state))
    return ToyTokenizer(inner, fallback_bytes(inner), begins=True)


def metaspace_unigram() -> ToyTokenizer:
    letters = sorted({c for line in TEXT[:2] for c in line if c not in " \n"})
    pieces = ["▁", "▁the", "▁world", "▁hello", "ing", "er", *letters]
    vocab = [(token, 0.0) for token in [*SPECIALS, "<unk>", *BYTES]]
    vocab += [(piece, -float(len(pieces) - n)) for n, piece in enumerate(reversed(pieces))]
    inner = hf.Tokenizer(models.Unigram(vocab, unk_id=2, byte_fallback=True))
    inner.add_special_tokens(SPECIALS)
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    inner.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
    return ToyTokenizer(inner, fallback_bytes(inner), begins=True)


def word_piece() -> ToyTokenizer:
    inner = hf.Tokenizer(models.WordPiece(unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece(cleanup=True)
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=[*SPECIALS, "<unk>"], show_progress=False)
    inner.train_from_iterator(TEXT, trainer)
    return ToyTokenizer(inner, {}, begins=True)


KINDS = {
    "byte_level": byte_level,
    "metaspace_bpe": metaspace_bpe,
    "metaspace_unigram": metaspace_unigram,
    "word_piece": word_piece,
}


@pytest.fixture(scope="session")
def toy_tokenizers() -> dict[str, ToyTokenizer]:
    return {name: make() for name, make in KINDS.items()}


@pytest.fixture(params=sorted(KINDS))
def tokenizer(request: pytest.FixtureRequest, toy_tokenizers: dict[str, ToyTokenizer]) -> ToyTokenizer:
    return toy_tokenizers[request.param]


@pytest.fixture(params=["byte_level", "metaspace_bpe", "metaspace_unigram"])
def byte_tokenizer(request: pytest.FixtureRequest, toy_tokenizers: dict[str, ToyTokenizer]) -> ToyTokenizer:
    """Tokenizers that can write any byte."""
    return toy_tokenizers[request.param]
