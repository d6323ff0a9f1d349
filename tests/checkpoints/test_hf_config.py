"""config.json against the real configuration classes of transformers, and everything that has to be refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from trtspec.checkpoints.hf_config import model_config
from trtspec.errors import CheckpointError
from trtspec.runtime.config import ModelConfig, RopeConfig

BASE: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
}


def read(**changes: Any) -> ModelConfig:
    return model_config({**BASE, **changes}, Path("config.json"))


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_what_transformers_saves_is_read_alike(tmp_path: Path, family: str) -> None:
    sizes = {name: value for name, value in BASE.items() if name != "model_type"}
    theirs = transformers.AutoConfig.for_model(family, **sizes, tie_word_embeddings=True)
    theirs.save_pretrained(tmp_path)
    ours = model_config(json.loads((tmp_path / "config.json").read_text()), tmp_path / "config.json")
    assert (ours.family, ours.hidden_size, ours.num_kv_heads, ours.tied) == (family, 32, 2, True)
    assert ours.head_dim == (getattr(theirs, "head_dim", None) or 8)
    assert ours.rope == RopeConfig(theta=theirs.rope_parameters["rope_theta"])
    assert (ours.qkv_bias, ours.o_bias, ours.qk_norm) == (family == "qwen2", False, family == "qwen3")
    assert ours.sliding_window == (theirs.sliding_window if family == "mistral" else None)


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("bias", [True, False])
def test_biases_are_where_transformers_has_them(family: str, bias: bool) -> None:
    ours = read(model_type=family, attention_bias=bias, mlp_bias=bias, head_dim=8)
    config = transformers.AutoConfig.for_model(**{**BASE, "model_type": family, "head_dim": 8})
    if family in ("llama", "qwen3"):
        config.attention_bias = bias
    if family == "llama":
        config.mlp_bias = bias
    with torch.device("meta"):
        names = set(transformers.AutoModelForCausalLM.from_config(config).state_dict())
    layer = "model.layers.0."
    assert ours.qkv_bias == (f"{layer}self_attn.q_proj.bias" in names)
    assert ours.o_bias == (f"{layer}self_attn.o_proj.bias" in names)
    assert ours.mlp_bias == (f"{layer}mlp.down_proj.bias" in names)
    assert ours.qk_norm == (f"{layer}self_attn.q_norm.weight" in names)


MIXED_LAYERS = ["full_attention", "sliding_attention"]
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize("key", ["type", "rope_type"])
@pytest.mark.parametrize(
    ("scaling", "rope"),
    [
        ({"t": "default"}, RopeConfig(theta=5e5)),
        ({"t": "linear", "factor": 2.0}, RopeConfig("linear", 5e5, 2.0)),
        ({"t": "dynamic", "factor": 2.0}, RopeConfig("dynamic", 5e5, 2.0, 128)),
        ({"t": "llama3", **LLAMA3}, RopeConfig("llama3", 5e5, 8.0, 64, 1.0, 4.0)),
        (
            {"t": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 16},
            RopeConfig("yarn", 5e5, 4.0, 32, beta_fast=16.0),
        ),
        (
            {"t": "yarn", "factor": 4.0, "attention_factor": 1.5},
            RopeConfig("yarn", 5e5, 4.0, 128, attention_factor=1.5),
        ),
    ],
)
def test_rope_in_the_old_and_the_new_spelling(key: str, scaling: dict[str, Any], rope: RopeConfig) -> None:
    scaling = {key if name == "t" else name: value for name, value in scaling.items()}
    assert read(rope_scaling=scaling, rope_theta=5e5).rope == rope
    assert read(rope_parameters={**scaling, "rope_theta": 5e5}).rope == rope


def test_yarn_with_mscale_gives_transformers_attention_factor() -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaling = {"rope_type": "yarn", "factor": 4.0, "mscale": 0.7, "mscale_all_dim": 1.0, "rope_theta": 1e4}
    scaling["original_max_position_embeddings"] = 32
    config = transformers.LlamaConfig(**{**BASE, "rope_parameters": scaling})
    _, expected = ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")
    assert read(rope_parameters=scaling).rope.attention_factor == pytest.approx(expected)


def test_no_rope_keys_at_all() -> None:
    assert read().rope == RopeConfig(theta=10000.0)
    assert read(rope_scaling=None, rope_theta=1e6).rope == RopeConfig(theta=1e6)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "gemma3"}, "model type 'gemma3' is not run"),
        ({"model_type": None}, "model type None is not run"),
        ({"num_local_experts": 8}, "mixtures of experts"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not run"),
        ({"partial_rotary_factor": 0.5}, r"partial_rotary_factor 0\.5"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, r"partial_rotary_factor 0\.5"),
        ({"rope_scaling": {"type": "longrope", "factor": 2.0}}, "rope type 'longrope' is not run"),
        ({"rope_scaling": {"rope_type": "mrope"}}, "rope type 'mrope' is not run"),
        ({"rope_scaling": {"type": "linear"}}, "rope factor is None"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0, "truncate": False}}, "truncate: false"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "per layer type"),
        ({"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8}, "use_sliding_window of qwen2"),
        (
            {"model_type": "qwen3", "layer_types": ["full_attention", "sliding_attention"]},
            "use_sliding_window of qwen3",
        ),
        ({"model_type": "mistral", "layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ({"logits_scaling": 8.0}, "logits_scaling"),
        ({"num_key_value_heads": 3}, "4 heads cannot share 3"),
        ({"num_attention_heads": 5, "num_key_value_heads": 5}, "hidden_size 32 is no multiple of 5"),
        ({"head_dim": 7}, "head_dim 7 is odd"),
        ({"vocab_size": "many"}, "vocab_size is 'many'"),
        ({"hidden_size": None}, "hidden_size is None"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
        ({"rope_theta": -1}, "rope_theta is -1"),
    ],
)
def test_what_is_not_run_is_refused_by_name(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError, match=words) as caught:
        read(**changes)
    assert caught.value.hint


def test_mistrals_window() -> None:
    assert read(model_type="mistral", sliding_window=4096).sliding_window == 4096
    assert read(model_type="mistral", sliding_window=None).sliding_window is None
    assert read(model_type="qwen2", sliding_window=4096, use_sliding_window=False).sliding_window is None


@pytest.mark.parametrize(("key", "value"), [("num_hidden_layers", 10_001), ("vocab_size", 2**31)])
def test_counts_that_no_model_has_are_refused(key: str, value: int) -> None:
    with pytest.raises(CheckpointError, match=f"{key} is {value}, and {value - 1} is the most"):
        read(**{key: value})
