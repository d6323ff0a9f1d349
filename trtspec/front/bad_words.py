"""Bad words to token sequences."""

from __future__ import annotations

from collections.abc import Iterable

from trtspec.front.tokens import Tokenizer

ANCHOR = "\n"  # what a word is encoded behind, to see its tokens inside a text


def sequences(words: Iterable[str], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """The tokens of each word as the tokenizer writes it at the start of a text and inside one, with and without a
    leading space. A word that a model spells in other pieces is not caught: that is what every engine's bad words do.
    """
    found: dict[tuple[int, ...], None] = {}
    for word in words:
        for text in (word, " " + word.lstrip(" ")):
            for ids in _encodings(text, tokenizer):
                if tokenizer.decode(ids, skip_special=False).strip() == word.strip():
                    found[ids] = None
    return tuple(found)


def _encodings(text: str, tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    anchor = tokenizer.encode(ANCHOR, add_special=False)
    inside = tokenizer.encode(ANCHOR + text, add_special=False)
    encodings = [tuple(tokenizer.encode(text, add_special=False))]
    if inside[: len(anchor)] == anchor:
        encodings.append(tuple(inside[len(anchor) :]))
    return [ids for ids in encodings if ids]
