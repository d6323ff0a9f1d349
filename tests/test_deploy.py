from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trtspec.deploy import engine_options, front_settings
from trtspec.front.settings import FrontSettings, RouteSettings
from trtspec.runtime.config import ModelConfig
from trtspec.runtime.options import EngineOptions
from trtspec.spec.model import Spec


@dataclass(frozen=True)
class Facts:
    config: ModelConfig


@dataclass(frozen=True)
class Built:
    path: Path


def facts(max_positions: int) -> Facts:
    return Facts(ModelConfig("llama", 64, 32, 64, 2, 4, 2, 8, 1e-5, max_positions))


def spec(**keys: Any) -> Spec:
    return Spec.model_validate({"name": "toy", "target": {"model": "./toy"}, **keys})


BUILT = {"target": Built(Path("/e/target-1"))}
NGRAM = {"method": "ngram", "max_draft_len": 3, "max_ngram": 4, "min_ngram": 2}
PAIR = {"method": "draft_target", "draft": {"model": "./draft"}, "max_draft_len": 5}


def test_the_smallest_spec() -> None:
    options = engine_options(spec(), facts(2048), BUILT, vocab_size=60)
    assert options == EngineOptions(
        target="/e/target-1", max_seq_len=2048, max_input_len=2047, vocab_size=60, method_options={}
    )
    assert EngineOptions.from_dict(json.loads(json.dumps(options.to_dict()))) == options


@pytest.mark.parametrize(
    ("positions", "limits", "expected"),
    [
        (131072, {}, (8192, 8191)),
        (2048, {}, (2048, 2047)),
        (131072, {"max_seq_len": 16384}, (16384, 16383)),
        (2048, {"max_seq_len": 16}, (16, 15)),
        (2048, {"max_seq_len": 16, "max_input_len": 8}, (16, 8)),
        (16, {"max_input_len": 16}, (16, 15)),
    ],
)
def test_lengths_and_their_defaults(positions: int, limits: dict[str, int], expected: tuple[int, int]) -> None:
    options = engine_options(spec(limits=limits), facts(positions), BUILT)
    settings = front_settings(spec(limits=limits), facts(positions))
    assert (options.max_seq_len, options.max_input_len) == expected
    assert (settings.max_seq_len, settings.max_input_len) == expected


def test_ngram_options_travel() -> None:
    options = engine_options(spec(speculation=NGRAM), facts(2048), BUILT)
    assert (options.method, options.max_draft_len, options.draft) == ("ngram", 3, None)
    assert options.method_options == {"max_draft_len": 3, "max_ngram": 4, "min_ngram": 2}


def test_the_draft_and_the_kernels_are_artifacts() -> None:
    built = {**BUILT, "draft": Built(Path("/e/draft-2")), "kernels": Built(Path("/e/kernels-3"))}
    options = engine_options(spec(speculation=PAIR), facts(2048), built, device="cuda")
    assert (options.draft, options.kernels) == ("/e/draft-2", "/e/kernels-3/kernels.so")
    assert (options.method, options.max_draft_len, options.device) == ("draft_target", 5, "cuda")
    assert "draft" not in options.method_options
    json.dumps(options.to_dict())


def test_a_missing_draft_is_not_guessed() -> None:
    with pytest.raises(KeyError):
        engine_options(spec(), facts(2048), {})


def test_limits_and_switches_travel() -> None:
    keys = {
        "limits": {"max_batch_size": 3, "max_num_tokens": 77, "kv_tokens": 99},
        "reference": {"threads": 2, "compile": "off"},
    }
    options = engine_options(spec(**keys), facts(2048), BUILT)
    assert (options.max_batch_size, options.max_num_tokens, options.kv_tokens) == (3, 77, 99)
    assert (options.threads, options.compile) == (2, "off")


def test_front_settings_hold_routes_and_bounds() -> None:
    keys: dict[str, Any] = {
        "speculation": NGRAM,
        "routes": {"code": {"kind": "code", "speculation": "always", "max_draft_len": 2}},
        "gate": {"off_when": {"batch_above": 4}},
    }
    settings = front_settings(spec(**keys), facts(2048))
    assert settings.routes == {"default": RouteSettings(), "code": RouteSettings("code", "always", 2)}
    assert settings.off_when.batch_above == 4
    assert (settings.name, settings.runtime, settings.method, settings.max_draft_len) == (
        "toy",
        "reference",
        "ngram",
        3,
    )
    assert FrontSettings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings
