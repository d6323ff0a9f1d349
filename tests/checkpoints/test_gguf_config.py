from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from tests.checkpoints.gguf_files import gguf_tensors, model_metadata, vocabulary_metadata, write_gguf
from trtspec.checkpoints.facts import read_facts
from trtspec.checkpoints.gguf_config import llama3_divisor, llama3_rope
from trtspec.checkpoints.layout import required_tensors
from trtspec.errors import CheckpointError
from trtspec.runtime.config import ModelConfig, RopeConfig

CONFIG = ModelConfig("llama", 8, 32, 48, 1, 4, 2, 8, 1e-5, 128, RopeConfig(theta=5e5))


def file_of(
    path: Path,
    *,
    arch: str = "llama",
    config: ModelConfig = CONFIG,
    drop: str | None = None,
    extra: dict[str, np.ndarray] | None = None,
    **metadata: Any,
) -> Path:
    """``metadata`` keys: ``__`` is a dot; a value of None drops the key."""
    tensors = {name: np.zeros(shape, np.float32) for name, shape in required_tensors(config, "huggingface").items()}
    converted = gguf_tensors(config, tensors, arch) | (extra or {})
    converted.pop(drop or "", None)
    pairs = model_metadata(config, arch) | vocabulary_metadata(["a", "b"], [1, 1])
    pairs |= {key.replace("__", "."): value for key, value in metadata.items()}
    return write_gguf(path / "m.gguf", {k: v for k, v in pairs.items() if v is not None}, converted)


def test_epsilon_and_theta_are_the_decimals_that_were_meant(tmp_path: Path) -> None:
    assert read_facts(file_of(tmp_path)).config == CONFIG


def test_sizes_that_are_left_out(tmp_path: Path) -> None:
    file = file_of(
        tmp_path,
        llama__attention__key_length=None,
        llama__attention__value_length=None,
        llama__rope__dimension_count=None,
        llama__rope__freq_base=None,
    )
    config = read_facts(file).config
    assert (config.head_dim, config.rope.theta) == (8, 10000.0)


def test_heads_per_layer_may_be_a_list_of_equals(tmp_path: Path) -> None:
    assert read_facts(file_of(tmp_path, llama__attention__head_count_kv=[2, 2])).config.num_kv_heads == 2


def test_a30_tied_and_untied_output(tmp_path: Path) -> None:
    assert not read_facts(file_of(tmp_path)).config.tied
    facts = read_facts(file_of(tmp_path, drop="output.weight"))
    assert facts.config.tied


@pytest.mark.parametrize(
    ("scaling", "rope"),
    [
        ({"type": "none"}, RopeConfig(theta=5e5)),
        ({"type": "linear", "factor": 4.0}, RopeConfig("linear", 5e5, 4.0)),
        ({"type": "linear", "factor": 1.0}, RopeConfig(theta=5e5)),
        (
            {"type": "yarn", "factor": 4.0, "original_context_length": 32},
            RopeConfig("yarn", 5e5, 4.0, 32),
        ),
        (
            {"type": "yarn", "factor": 4.0, "attn_factor": 1.0},
            RopeConfig("yarn", 5e5, 4.0, 128, attention_factor=0.1 * float(np.log(4)) + 1),
        ),
    ],
)
def test_rope_scaling(tmp_path: Path, scaling: dict[str, Any], rope: RopeConfig) -> None:
    metadata = {f"llama__rope__scaling__{key}": value for key, value in scaling.items()}
    assert read_facts(file_of(tmp_path, **metadata)).config.rope == rope


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"general__architecture": "gemma3"}, "architecture 'gemma3' is not run"),
        ({"general__architecture": None}, "architecture None is not run"),
        ({"split__count": 3}, "one part of a split model"),
        ({"llama__expert_count": 8}, "mixtures of experts"),
        ({"llama__attention__head_count": None}, "attention.head_count is None"),
        ({"llama__attention__head_count_kv": [2, 4]}, r"head_count_kv is \[2, 4\]"),
        ({"llama__attention__head_count_kv": 3}, "4 heads cannot share 3"),
        ({"llama__rope__dimension_count": 4}, "rope.dimension_count 4 differs from the head size 8"),
        ({"llama__attention__value_length": 4}, "attention.value_length 4 differs"),
        ({"llama__rope__scaling__type": "longrope", "llama__rope__scaling__factor": 2.0}, "'longrope' is not run"),
        ({"llama__attention__layer_norm_rms_epsilon": None}, "rms_epsilon is None"),
        ({"llama__block_count": 2}, r"tensor blk\.1\.attn_norm\.weight is missing and 8 more"),
        ({"llama__feed_forward_length": 64}, r"blk\.0\.ffn_gate\.weight has the shape \[48, 32\]"),
    ],
)
def test_what_is_not_run_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        read_facts(file_of(tmp_path, **changes))


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tensor blk\.0\.ffn_up\.weight is missing"):
        read_facts(file_of(tmp_path, drop="blk.0.ffn_up.weight"))
    with pytest.raises(CheckpointError, match=r"tensor token_embd\.weight is missing"):
        read_facts(file_of(tmp_path, drop="token_embd.weight"))


def test_a_bias_is_seen(tmp_path: Path) -> None:
    config = ModelConfig(**{**vars(CONFIG), "qkv_bias": True, "family": "qwen2"})
    assert read_facts(file_of(tmp_path, arch="qwen2", config=config)).config == config
    with pytest.raises(CheckpointError, match=r"no place in a llama decoder: blk\.0\.attn_sinks\.weight"):
        read_facts(file_of(tmp_path, extra={"blk.0.attn_sinks.weight": np.zeros(4, np.float32)}))


def divisors(theta: float, head_dim: int, **scaling: float) -> list[float]:
    """What a converter writes: unscaled over scaled frequencies, as transformers computes these."""
    parameters = {"rope_type": "llama3", "rope_theta": theta, **scaling}
    config = transformers.LlamaConfig(
        hidden_size=head_dim, num_attention_heads=1, rope_parameters=parameters, max_position_embeddings=1 << 17
    )
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    unscaled = theta ** -(torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    return [float(np.float32(value)) for value in unscaled / scaled.double()]


LLAMA31 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def test_llama3_factors_of_the_usual_models(tmp_path: Path) -> None:
    for factor, head_dim in ((8.0, 128), (32.0, 64)):
        rope = llama3_rope(5e5, divisors(5e5, head_dim, **{**LLAMA31, "factor": factor}), head_dim, "m.gguf")
        assert rope == RopeConfig("llama3", 5e5, factor, 8192, 1.0, 4.0)


@pytest.mark.parametrize(
    "scaling",
    [
        {**LLAMA31, "original_max_position_embeddings": 4096},
        {**LLAMA31, "low_freq_factor": 2.0, "high_freq_factor": 16.0, "factor": 4.0},
    ],
)
def test_other_llama3_parameters_give_the_same_frequencies(scaling: dict[str, float]) -> None:
    factors = divisors(5e5, 128, **scaling)
    rope = llama3_rope(5e5, factors, 128, "m.gguf")
    again = [llama3_divisor(rope, 5e5 ** (-2 * i / 128)) for i in range(64)]
    np.testing.assert_allclose(again, factors, rtol=1e-4)


def test_a31_llama3_frequencies() -> None:
    rope = RopeConfig("llama3", 10000.0, 4.0, 64, 1.0, 4.0)
    frequencies = [10000.0 ** (-2 * i / 8) for i in range(4)]
    scaled = [frequency / llama3_divisor(rope, frequency) for frequency in frequencies]
    np.testing.assert_allclose(scaled, [1, 0.025465, 0.0025, 0.00025], rtol=1e-4)


def test_factors_of_a_file_become_its_rope(tmp_path: Path) -> None:
    factors = np.array(divisors(5e5, 8, **LLAMA31), np.float32)
    rope = read_facts(file_of(tmp_path, extra={"rope_freqs.weight": factors})).config.rope
    again = [llama3_divisor(rope, 5e5 ** (-2 * i / 8)) for i in range(4)]
    np.testing.assert_allclose(again, factors, rtol=1e-3)


@pytest.mark.parametrize("factors", [[1.0, 3.0, 1.0, 2.0], [1.0, 1.0, 1.0], []])
def test_other_factors_are_refused_by_name(factors: list[float]) -> None:
    with pytest.raises(CheckpointError, match=r"rope_freqs\.weight holds no scaling of type llama3"):
        llama3_rope(5e5, factors, 8, "m.gguf")
