"""The releases table: what runs where, and that every refusal names what works instead."""

from __future__ import annotations

import pytest

from trtspec.errors import SpecError
from trtspec.trtllm.releases import REFERENCE_METHODS, RELEASES, find, resolve_runtime

METHODS = [
    "none",
    "ngram",
    "suffix",
    "lookahead",
    "draft_target",
    "specinfer",
    "medusa",
    "eagle",
    "eagle3",
    "mtp",
    "redrafter",
]
ENGINE_METHODS = {"none", "draft_target", "medusa", "eagle", "redrafter", "lookahead", "ngram", "suffix"}


@pytest.mark.parametrize("name", ["0.21.0", "1.0.0", "1.1.0", "1.2.0", "1.2.1"])
def test_engines_compile_up_to_1_2(name: str) -> None:
    release = find(name)
    runs = {method for method in METHODS if release.refusal(method, "tensorrt") is None}
    assert runs == ENGINE_METHODS


@pytest.mark.parametrize("name", ["1.3", "main"])
@pytest.mark.parametrize("method", METHODS)
def test_later_releases_compile_nothing(name: str, method: str) -> None:
    refusal = find(name).refusal(method, "tensorrt")
    assert refusal is not None
    assert method in refusal and "nearest that works" in refusal


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("1.1.0", set()),
        ("1.2.0", {"none", "draft_target", "eagle3", "mtp", "ngram"}),
        ("1.2.1", {"none", "draft_target", "eagle3", "mtp", "ngram"}),
        ("1.3", {"none", "draft_target", "eagle3", "mtp", "ngram"}),
        ("main", {"none", "draft_target", "eagle3", "mtp", "ngram", "suffix"}),
    ],
)
def test_pytorch_methods(name: str, expected: set[str]) -> None:
    release = find(name)
    assert {method for method in METHODS if release.refusal(method, "pytorch") is None} == expected


def test_pytorch_below_1_2_names_the_nearest_release() -> None:
    refusal = find("1.1.0").refusal("eagle3", "pytorch")
    assert refusal is not None
    assert "1.1.0" in refusal and "1.2.1" in refusal and "1.2.0 or later" in refusal


def test_eagle_2_has_no_engine() -> None:
    release = find("1.2.1")
    assert release.refusal("eagle", "tensorrt", version=1) is None
    refusal = release.refusal("eagle", "tensorrt", version=2)
    assert refusal is not None and "version 2" in refusal and "version 1" in refusal


def test_what_is_refused_by_the_reference_runtime_names_one_it_has() -> None:
    release = find("1.2.1")
    for method in METHODS:
        refusal = release.refusal(method, "reference")
        assert (refusal is None) == (method in REFERENCE_METHODS)
        if refusal is not None:
            assert method in refusal
            assert any(refusal.endswith(f"method {known}") for known in REFERENCE_METHODS)


def test_an_unknown_release_names_the_nearest() -> None:
    with pytest.raises(SpecError) as caught:
        find("1.2.2")
    assert caught.value.where == "release"
    assert caught.value.hint is not None and '"1.2.1"' in caught.value.hint and "main" in caught.value.hint


@pytest.mark.parametrize(
    ("method", "name", "accelerated", "expected"),
    [
        ("draft_target", "1.2.1", False, "reference"),
        ("draft_target", "1.2.1", True, "tensorrt"),
        ("none", "0.21.0", True, "tensorrt"),
        ("suffix", "1.2.1", True, "tensorrt"),
        ("eagle3", "1.2.1", True, "pytorch"),
        ("mtp", "1.2.0", True, "pytorch"),
        ("draft_target", "1.3", True, "pytorch"),
        ("ngram", "main", True, "pytorch"),
        ("specinfer", "1.2.1", True, "reference"),
        ("eagle3", "1.1.0", True, "reference"),
    ],
)
def test_auto(method: str, name: str, accelerated: bool, expected: str) -> None:
    assert resolve_runtime("auto", method, find(name), accelerated=accelerated) == expected


def test_a_named_runtime_stays() -> None:
    assert resolve_runtime("pytorch", "medusa", find("1.1.0"), accelerated=False) == "pytorch"


def test_every_fact_has_a_source() -> None:
    for release in RELEASES.values():
        assert release.container_source
        for table in (release.tensorrt, release.pytorch):
            for spelling in table.values():
                assert spelling.source
                assert spelling.verified or spelling.why


def test_the_unsettled_spelling_is_marked() -> None:
    spelling = find("1.2.1").spelling("draft_target", "pytorch")
    assert spelling is not None
    assert spelling.value == "Draft_Target" and not spelling.verified
