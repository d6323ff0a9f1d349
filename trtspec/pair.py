"""Whether a draft model fits its target: the same tokens under the same ids, and a size that can pay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trtspec.check_facts import ModelFacts, Vocabulary
from trtspec.finding import Finding, found
from trtspec.spec.model import Spec

_WANTED_RATIO = (4.0, 10.0)


@dataclass(frozen=True)
class Difference:
    """The first id that stands for different tokens, and how many do."""

    token_id: int
    target: str | None
    draft: str | None
    count: int


def difference(target: Vocabulary, draft: Vocabulary) -> Difference | None:
    """Compares every id of both vocabularies; None when they are the same."""
    ids = range(max(target.vocab_size, draft.vocab_size))
    different = [token_id for token_id in ids if target.token(token_id) != draft.token(token_id)]
    if not different:
        return None
    first = different[0]
    return Difference(first, target.token(first), draft.token(first), len(different))


def check_pair(spec: Spec, where: str, target: ModelFacts, draft: ModelFacts) -> Iterator[Finding]:
    """``where`` is the draft's dotted path."""
    different = list(_same_tokens(spec, where, target, draft))
    yield from different or _same_rows(spec, where, target, draft)
    yield from _ratio(spec, where, target, draft)


def _same_tokens(spec: Spec, where: str, target: ModelFacts, draft: ModelFacts) -> Iterator[Finding]:
    if target.vocabulary is None or draft.vocabulary is None:
        return
    differs = difference(target.vocabulary, draft.vocabulary)
    if differs is None:
        return
    more = f"; {differs.count} ids differ" if differs.count > 1 else ""
    yield found(
        spec,
        "error",
        f"{where}.model",
        "vocabulary",
        f"id {differs.token_id} is {_shown(differs.target)} in the target, {_shown(differs.draft)} in the draft{more}",
        "draft and target must have the same vocabulary: choose a draft of the target's own family",
    )


def _shown(token: str | None) -> str:
    return "no token" if token is None else f'"{token}"'


def _same_rows(spec: Spec, where: str, target: ModelFacts, draft: ModelFacts) -> Iterator[Finding]:
    if target.headers is None or draft.headers is None:
        return
    rows, draft_rows = target.headers.config.vocab_size, draft.headers.config.vocab_size
    if rows == draft_rows:
        return
    compared = target.vocabulary is not None and draft.vocabulary is not None
    tail = "only the padding differs, and padding is never chosen" if compared else "their tokens were not compared"
    yield found(
        spec,
        "info" if compared else "warning",
        f"{where}.model",
        "vocabulary_rows",
        f"the target's output matrix has {rows} rows and the draft's has {draft_rows}: {tail}",
        None if compared else "check again when both tokenizers are on disk",
    )


def _ratio(spec: Spec, where: str, target: ModelFacts, draft: ModelFacts) -> Iterator[Finding]:
    if target.headers is None or draft.headers is None:
        return
    ratio = target.headers.parameters / max(1, draft.headers.parameters)
    low, high = _WANTED_RATIO
    if low <= ratio <= high:
        return
    cost = "drafting costs much of what it saves" if ratio < low else "so small a draft is often wrong"
    yield found(
        spec,
        "info",
        f"{where}.model",
        "size_ratio",
        f"the target is {ratio:.1f} times the draft's size, and {low:.0f} to {high:.0f} is usual: {cost}",
        "measure before relying on it",
    )
