from __future__ import annotations

from trtspec.runtime.proposers.ngram import NgramProposer
from trtspec.runtime.sequence import Sequence
from trtspec.runtime.types import EngineRequest


def propose(ids: list[int], length: int, max_ngram: int = 3, min_ngram: int = 1) -> list[int]:
    sequence = Sequence(EngineRequest("x", ids, 10), print, list(ids), 10)
    return NgramProposer(max_ngram, min_ngram).propose([sequence], [length])[0].tokens


def test_what_followed_the_last_ngram() -> None:
    assert propose([1, 2, 3, 4, 5, 1, 2, 3], 2) == [4, 5]
    assert propose([1, 2, 3, 4, 5, 1, 2, 3], 4) == [4, 5, 1, 2]


def test_the_longest_ngram_wins_over_a_later_shorter_one() -> None:
    assert propose([1, 2, 9, 7, 2, 8, 1, 2], 1) == [9]


def test_of_equal_ngrams_the_latest_wins() -> None:
    assert propose([1, 2, 9, 1, 2, 8, 1, 2], 1) == [8]


def test_a_copy_may_run_into_itself() -> None:
    assert propose([5, 5], 4) == [5, 5, 5, 5]
    assert propose([1, 2, 1, 2], 5) == [1, 2, 1, 2, 1]


def test_no_guess_where_nothing_matches() -> None:
    assert propose([1, 2, 3], 4) == []
    assert propose([1, 2, 3, 1], 4, min_ngram=2) == []
    assert propose([7], 4) == []


def test_the_index_grows_with_the_sequence() -> None:
    sequence = Sequence(EngineRequest("x", [1, 2], 10), print, [1, 2], 10)
    proposer = NgramProposer(3, 1)
    assert proposer.propose([sequence], [3])[0].tokens == []
    sequence.ids += [3, 1, 2]
    assert proposer.propose([sequence], [3])[0].tokens == [3, 1, 2]
