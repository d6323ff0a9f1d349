"""A draft tree as its paths: ``[[0], [0, 0], [1]]`` takes the best token, the best after it, and the second best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from trtspec.methods.frozen import refused

Paths = list[list[Annotated[int, Field(ge=0)]]]


def depth(paths: Sequence[Sequence[int]]) -> int:
    return max(len(path) for path in paths)


def check_paths(key: str, paths: Sequence[Sequence[int]]) -> None:
    """Raises where a path is empty, written twice, or lacks the shorter path it grows from."""
    if not paths:
        raise refused(key, f"{key} is an empty tree", f"write its paths, [[0], [0, 0], [1]], or leave {key} out")
    seen: set[tuple[int, ...]] = set()
    everyone = {tuple(path) for path in paths}
    for index, path in enumerate(map(tuple, paths)):
        where = f"{key}.{index}"
        if not path:
            raise refused(where, "a path of the tree is empty", "a path names a rank for each depth, as [0, 1]")
        if path in seen:
            raise refused(where, f"the path {list(path)} is written twice", "remove one of them")
        if len(path) > 1 and path[:-1] not in everyone:
            raise refused(
                where,
                f"the path {list(path)} grows from {list(path[:-1])}, which is not in the tree",
                f"add {list(path[:-1])}",
            )
        seen.add(path)


def check_depth(key: str, paths: Sequence[Sequence[int]], max_draft_len: int) -> None:
    if depth(paths) != max_draft_len:
        raise refused(
            key,
            f"{key} is {depth(paths)} deep and max_draft_len is {max_draft_len}",
            f"write max_draft_len: {depth(paths)}, or change the tree",
        )
