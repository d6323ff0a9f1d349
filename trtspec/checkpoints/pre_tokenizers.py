"""How a byte-level BPE splits text before merging, by GGUF's ``tokenizer.ggml.pre``.

The expressions are those of the models' own tokenizer.json files, as llama.cpp's llama-vocab.cpp lists them; each
splits what the one before left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class PreTokenizer:
    """``whole_words``: a word that is a token by itself is not taken apart and merged. ``nfc``: text is composed first.

    ``begins``: whether a text begins with the begin token where the metadata do not say.
    """

    splits: tuple[str, ...]
    whole_words: bool = False
    nfc: bool = False
    begins: bool = False


_DIGITS_APART = PreTokenizer((r"\p{N}", _GPT2))
_LLAMA3 = PreTokenizer((_WORDS + r"|\p{N}{1,3}" + _TAIL,), whole_words=True, begins=True)
_QWEN2 = PreTokenizer((_WORDS + r"|\p{N}" + _TAIL,), nfc=True)

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "gpt-2": PreTokenizer((_GPT2,)),
    "smollm": _DIGITS_APART,
    "starcoder": _DIGITS_APART,
    "refact": _DIGITS_APART,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": PreTokenizer(_QWEN2.splits),
    "deepseek-coder": PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}")),
    "tekken": PreTokenizer((_TEKKEN,), whole_words=True, begins=True),
}
