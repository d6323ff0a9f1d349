"""Bytes by arithmetic."""

from __future__ import annotations

from trtspec.memory import human_bytes, kv_budget, kv_bytes_per_token, shared_kv_tokens, weights_bytes
from trtspec.methods.model import Quantization
from trtspec.runtime.config import ModelConfig

GIB = 1 << 30


def _model(layers: int, kv_heads: int, head_dim: int, *, tied: bool = False) -> ModelConfig:
    return ModelConfig("llama", 1000, 64, 128, layers, kv_heads, kv_heads, head_dim, 1e-5, 4096, tied=tied)


def test_a25_two_kv_caches_share_one_budget() -> None:
    target = kv_bytes_per_token(_model(32, 8, 128), "bfloat16", Quantization(kv_cache="fp8"))
    draft = kv_bytes_per_token(_model(16, 8, 64), "float16", Quantization())
    assert (target, draft) == (65536, 32768)
    budget = kv_budget(24 * GIB, 0.9, 2 * GIB, {"target": 8 * GIB, "draft": 2 * GIB})
    tokens = shared_kv_tokens(budget, {"target": target, "draft": draft})
    assert tokens == 131072
    assert (tokens * target, tokens * draft) == (8 * GIB, 4 * GIB)


def test_without_a_reserve_a_fraction_of_what_weights_leave() -> None:
    assert kv_budget(100, 0.9, None, {"target": 50}) == 45
    assert shared_kv_tokens(-5, {"target": 1}) == 0


def test_quantized_weights_leave_embedding_and_output_alone() -> None:
    config, parameters = _model(2, 2, 16), 1_000_000
    outside = 2 * 1000 * 64
    assert weights_bytes(config, parameters, "bfloat16", Quantization()) == 2 * parameters
    assert weights_bytes(config, parameters, "float32", Quantization(weights="checkpoint")) == 4 * parameters
    expected = 2 * outside + (parameters - outside)
    assert weights_bytes(config, parameters, "bfloat16", Quantization(weights="fp8")) == expected
    tied = weights_bytes(_model(2, 2, 16, tied=True), parameters, "bfloat16", Quantization(weights="fp8"))
    assert tied == expected - outside // 2


def test_sizes_for_people() -> None:
    assert [human_bytes(n) for n in (12, 2048, 5 << 20, 3 << 30)] == ["12 bytes", "2.0 KiB", "5.0 MiB", "3.0 GiB"]
