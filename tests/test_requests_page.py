"""docs/requests.md names every field that a request may have and every part of an answer."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from trtspec.front.accounting import Counts
from trtspec.front.request import BEAM_FIELDS, PARSERS, ROLES, Request
from trtspec.repository.interface import FRONT_INPUTS, FRONT_OUTPUTS, Tensor

PAGE = (Path(__file__).parents[1] / "docs" / "requests.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`([a-z_]+)`", PAGE))
TYPES = "|".join(sorted({tensor.type for tensor in (*FRONT_INPUTS, *FRONT_OUTPUTS)}))
DEFAULTS = {field.name: field.default for field in fields(Request)}


def test_every_field_of_a_line_is_named() -> None:
    assert {*PARSERS, *BEAM_FIELDS, *ROLES} - NAMED == set()


@pytest.mark.parametrize("tensor", (*FRONT_INPUTS, *FRONT_OUTPUTS), ids=lambda tensor: tensor.name)
def test_every_tensor_is_named_with_its_type(tensor: Tensor) -> None:
    after = re.findall(rf"`{tensor.name}`[^|.]*?\b({TYPES})\b", PAGE)
    assert tensor.type in after


def test_every_key_of_an_answer_is_named() -> None:
    counts = {*Counts(4).to_dict(), *Counts(4).plain_dict()}
    own = {"enabled", "method", "max_draft_len", "acceptance", "reason"}
    keys = {"id", "text", "token_ids", "finish_reason", "usage", "prompt_tokens", "completion_tokens", "route"}
    more = {"route_requested", "seed", "log_probs", "speculation", "timing", "ttft_s", "total_s", "tokens_per_s"}
    assert (counts | own | keys | more) - NAMED == set()


def rows() -> list[tuple[str, str]]:
    """Field and default of the tables with a column for each of both names."""
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines() if line.startswith("| `")]
    return [(row[0].split("`")[1], row[3]) for row in cells if len(row) == 5]


def test_the_tables_have_every_field_once() -> None:
    names = [name for name, _ in rows()]
    assert sorted(names) == sorted(set(PARSERS) - {"prompt", "messages", "input_ids"})


@pytest.mark.parametrize(("name", "default"), rows())
def test_a_default_that_is_a_value_is_the_real_one(name: str, default: str) -> None:
    if re.fullmatch(r"[\d.]+|true|false|`[a-z]+`", default) and name != "route":
        assert value_of(default) == DEFAULTS[name]


def value_of(text: str) -> Any:
    words = {"true": True, "false": False}
    return words[text] if text in words else text[1:-1] if text.startswith("`") else ast.literal_eval(text)


def test_its_python_is_python() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    for block in blocks:
        compile(block, "docs/requests.md", "exec")
