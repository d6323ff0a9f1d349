"""Prompt lookup decoding (Saxena 2023): guess that what followed the last n-gram before will follow it again."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from trtspec.runtime.proposers.base import Proposal
from trtspec.runtime.sequence import Sequence


@dataclass
class NgramIndex:
    """Where each n-gram was last followed by something: n-gram -> index of the token after it."""

    follows: dict[tuple[int, ...], int] = field(default_factory=dict)
    indexed: int = 0  # tokens of the sequence already taken in


class NgramProposer:
    def __init__(self, max_ngram: int, min_ngram: int) -> None:
        self.max_ngram = max_ngram
        self.min_ngram = min_ngram

    def propose(self, sequences: Seq[Sequence], lengths: Seq[int]) -> list[Proposal]:
        return [Proposal(self._lookup(s, length)) for s, length in zip(sequences, lengths, strict=True)]

    def settle(self, sequence: Sequence, accepted: int) -> None:
        pass

    def _lookup(self, sequence: Sequence, length: int) -> list[int]:
        """The longest n-gram wins, and of its occurrences the latest; a copy may run into itself."""
        ids, index = sequence.ids, self._index(sequence)
        for n in range(min(self.max_ngram, len(ids)), self.min_ngram - 1, -1):
            at = index.follows.get(tuple(ids[-n:]))
            if at is not None:
                tokens = ids[at : at + length]
                period = len(ids) - at
                while len(tokens) < length:
                    tokens.append(tokens[len(tokens) - period])
                return tokens
        return []

    def _index(self, sequence: Sequence) -> NgramIndex:
        if not isinstance(sequence.memo, NgramIndex):
            sequence.memo = NgramIndex()
        index, ids = sequence.memo, sequence.ids
        for at in range(max(index.indexed, 1), len(ids)):
            for n in range(self.min_ngram, min(self.max_ngram, at) + 1):
                index.follows[tuple(ids[at - n : at])] = at
        index.indexed = len(ids)
        return index
