from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from trtspec.methods import LATER, METHODS
from trtspec.methods.base import Method
from trtspec.methods.lookahead import Lookahead, derived_draft_len
from trtspec.methods.medusa import Medusa
from trtspec.methods.specinfer import SpecInfer

DRAFT, HEAD = {"model": "./draft"}, "./head"
NEEDS: dict[str, dict[str, Any]] = {
    "draft_target": {"draft": DRAFT},
    "specinfer": {"drafts": [DRAFT]},
    "medusa": {"head": HEAD},
    "eagle": {"head": HEAD},
    "eagle3": {"head": HEAD},
    "redrafter": {"head": HEAD},
}
# the key table of the spec: method -> its own keys with their defaults
DEFAULTS: dict[str, dict[str, Any]] = {
    "none": {},
    "ngram": {"max_draft_len": 4, "max_ngram": 3, "min_ngram": 1},
    "suffix": {"max_draft_len": 8, "min_match": 2, "shared": False},
    "lookahead": {"window_size": 7, "ngram_size": 7, "verification_set_size": 7, "max_draft_len": None},
    "draft_target": {"max_draft_len": 4, "tree": None, "min_confidence": None},
    "specinfer": {"max_draft_len": 4, "branching": None},
    "medusa": {"choices": None},
    "eagle": {"version": 1, "max_draft_len": 5, "choices": None},
    "eagle3": {"max_draft_len": 4, "tree": None, "layers": None},
    "mtp": {"max_draft_len": 1, "layers": None},
    "redrafter": {"beams": 5, "beam_len": 5},
}
DRAFT_LEN = {
    "none": 0,
    "ngram": 4,
    "suffix": 8,
    "lookahead": 83,
    "draft_target": 4,
    "specinfer": 4,
    "medusa": 4,
    "eagle": 5,
    "eagle3": 4,
    "mtp": 1,
    "redrafter": 5,
}


def make(name: str, **options: Any) -> Method:
    return METHODS[name].model_validate({**NEEDS.get(name, {}), **options})


@pytest.mark.parametrize("name", METHODS)
def test_keys_and_defaults_are_those_of_the_table(name: str) -> None:
    dumped = make(name).model_dump()
    assert dumped.pop("method") == name
    assert {key: value for key, value in dumped.items() if key not in NEEDS.get(name, {})} == DEFAULTS[name]


@pytest.mark.parametrize("name", METHODS)
def test_draft_length_by_default(name: str) -> None:
    assert make(name).draft_len == DRAFT_LEN[name]


@pytest.mark.parametrize("name", NEEDS)
def test_what_a_method_needs_is_required(name: str) -> None:
    with pytest.raises(ValidationError, match="Field required"):
        METHODS[name].model_validate({})


@pytest.mark.parametrize("name", [name for name in METHODS if DEFAULTS[name].get("max_draft_len")])
def test_zero_is_plain_decoding(name: str) -> None:
    assert make(name, max_draft_len=0).draft_len == 0


def test_models_that_a_method_needs() -> None:
    models = {name: list(make(name).model_refs()) for name in METHODS}
    assert {name: paths for name, paths in models.items() if paths} == {
        "draft_target": ["draft"],
        "specinfer": ["drafts.0"],
    }


def test_names_for_later_are_no_methods() -> None:
    assert not set(LATER) & set(METHODS)


@pytest.mark.parametrize(
    ("sizes", "length"), [((7, 7, 7), 83), ((1, 1, 0), 0), ((2, 2, 1), 2), ((4, 3, 4), 15), ((5, 2, 0), 4)]
)
def test_a06_lookahead_draft_length_is_derived(sizes: tuple[int, int, int], length: int) -> None:
    window, ngram, verification = sizes
    options = Lookahead(window_size=window, ngram_size=ngram, verification_set_size=verification)
    assert derived_draft_len(*sizes) == options.draft_len == length


def test_a06_only_the_derived_length_is_taken() -> None:
    assert make("lookahead", max_draft_len=83).draft_len == 83
    with pytest.raises(ValidationError, match=r"max_draft_len 60 .* 83"):
        make("lookahead", max_draft_len=60)


@pytest.mark.parametrize("sizes", [(2, 1, 0), (1, 1, 1), (7, 1, 7)])
def test_lookahead_of_single_tokens_drafts_nothing(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValidationError, match="ngram_size 1 drafts nothing"):
        make("lookahead", window_size=sizes[0], ngram_size=sizes[1], verification_set_size=sizes[2])


def test_ngram_sizes_in_order() -> None:
    assert make("ngram", min_ngram=3).draft_len == 4
    with pytest.raises(ValidationError, match="min_ngram 4 is larger than max_ngram 3"):
        make("ngram", min_ngram=4)


def test_medusa_draft_length_is_its_trees_depth() -> None:
    assert isinstance(make("medusa"), Medusa)
    assert make("medusa", choices=[[0], [1], [0, 0], [0, 0, 2]]).draft_len == 3


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ([], "empty tree"),
        ([[]], "a path of the tree is empty"),
        ([[0], [0]], "written twice"),
        ([[0], [1, 0]], r"grows from \[1\]"),
        ([[0, 0]], r"grows from \[0\]"),
        ([[-1]], "greater than or equal to 0"),
    ],
)
@pytest.mark.parametrize("method", ["medusa", "eagle"])
def test_trees_are_sound(method: str, choices: list[list[int]], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        make(method, choices=choices)


def test_a_tree_is_as_deep_as_the_draft_is_long() -> None:
    tree = [[0], [0, 0]]
    assert make("draft_target", tree=tree, max_draft_len=2).draft_len == 2
    assert make("eagle", choices=tree, max_draft_len=2).draft_len == 2
    for name, key in (("draft_target", "tree"), ("eagle", "choices")):
        with pytest.raises(ValidationError, match=rf"{key} is 2 deep and max_draft_len is [45]"):
            make(name, **{key: tree})


def test_eagle_2_grows_its_own_tree() -> None:
    assert make("eagle", version=2).draft_len == 5
    with pytest.raises(ValidationError, match="version 2 grows its own"):
        make("eagle", version=2, choices=[[0]], max_draft_len=1)


def test_eagle3_layers_are_distinct() -> None:
    assert make("eagle3", layers=[2, 16, 29], tree="dynamic").draft_len == 4
    with pytest.raises(ValidationError, match="names a layer twice"):
        make("eagle3", layers=[2, 2])


def test_specinfer_branches_at_every_depth() -> None:
    several = SpecInfer.model_validate({"drafts": [DRAFT, {"model": "./other"}], "branching": [2, 2, 1, 1]})
    assert list(several.model_refs()) == ["drafts.0", "drafts.1"]
    with pytest.raises(ValidationError, match="branching has 2 numbers and max_draft_len is 4"):
        make("specinfer", branching=[2, 2])


@pytest.mark.parametrize("text", ["{key}", "{hint}", "{text}", "a\nb"])
def test_messages_repeat_the_users_text_as_it_is(text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        make("draft_target", draft={"model": text})
    assert repr(text)[1:-1] in caught.value.errors()[0]["ctx"]["text"]
