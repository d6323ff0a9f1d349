"""A folder of wrong specs. The comments at the top of each say, in order and word for word, all that is found in it:

``# LINE:COLUMN WHERE [CODE] MESSAGE`` and, where there is one, ``#   hint: HINT``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from trtspec.errors import SpecError
from trtspec.spec.load import load_spec, parse_spec

WRONG = sorted((Path(__file__).parent / "wrong").glob("*.yaml"))


def said(error: SpecError) -> list[str]:
    line = f"# {error.line}:{error.column} {error.where} [{error.code}] {error.message}"
    return [line, *([f"#   hint: {error.hint}"] if error.hint else [])]


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_wrong_spec_says_exactly_this(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    loaded = parse_spec(text, path.name, path.parent)
    lines = [line for error in loaded.errors for line in said(error)]
    assert loaded.spec is None
    assert lines == text.splitlines()[: len(lines)]
    assert lines and not text.splitlines()[len(lines)].startswith(("# 1", "#   hint"))


def test_the_folder_is_not_empty() -> None:
    assert len(WRONG) > 100


def test_load_raises_the_first_of_the_file() -> None:
    path = Path(__file__).parent / "wrong" / "several_faults.yaml"
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    assert (caught.value.where, caught.value.line) == ("name", 12)


@pytest.mark.parametrize("stem", [path.stem for path in WRONG if path.stem.endswith("_a07")])
def test_a07_beam_search_is_refused_with_its_reason(stem: str) -> None:
    path = Path(__file__).parent / "wrong" / f"{stem}.yaml"
    with pytest.raises(SpecError, match="beam search does not work with speculation"):
        load_spec(path)


def test_a03_both_numbers_are_named() -> None:
    with pytest.raises(SpecError, match=r"\b10\b.*\b4\b"):
        load_spec(Path(__file__).parent / "wrong" / "route_above_method_a03.yaml")


def test_a05_the_new_key_and_its_value_are_named() -> None:
    with pytest.raises(SpecError) as caught:
        load_spec(Path(__file__).parent / "wrong" / "max_output_len_a05.yaml")
    assert "max_seq_len: 128" in str(caught.value.hint)
