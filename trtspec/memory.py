"""Bytes of weights and of KV cache, by arithmetic over a model's sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trtspec.known import Known, limits_of, models_of, pack_dtype
from trtspec.methods.model import Checkpoint, Quantization
from trtspec.runtime.config import ModelConfig
from trtspec.spec.model import Spec
from trtspec.trtllm.releases import Runtime

BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1, "int8": 1}


@dataclass(frozen=True)
class ModelMemory:
    """One model over all its GPUs. None: not known before the model is on disk, or the memory's size is unknown."""

    weights_bytes: int | None = None
    kv_bytes_per_token: int | None = None
    kv_bytes: int | None = None
    kv_tokens: int | None = None

    def to_dict(self) -> dict[str, int | None]:
        return {
            "weights_bytes": self.weights_bytes,
            "kv_bytes_per_token": self.kv_bytes_per_token,
            "kv_bytes": self.kv_bytes,
            "kv_tokens": self.kv_tokens,
        }


def weights_bytes(config: ModelConfig, parameters: int, dtype: str, quantization: Quantization) -> int:
    """Quantization covers the decoder's matrices; embedding and output matrix stay in ``dtype``."""
    full = BYTES[dtype]
    if quantization.weights not in BYTES:
        return parameters * full
    outside = config.vocab_size * config.hidden_size * (1 if config.tied else 2)
    return outside * full + max(0, parameters - outside) * BYTES[quantization.weights]


def kv_bytes_per_token(config: ModelConfig, dtype: str, quantization: Quantization) -> int:
    return config.kv_elements_per_token * BYTES.get(quantization.kv_cache, BYTES[dtype])


def shared_kv_tokens(budget: int, per_token: Mapping[str, int]) -> int:
    """Tokens that fit when every model of the pair keeps the same ones: each takes its own bytes for each token."""
    return max(0, budget) // sum(per_token.values())


def kv_budget(total: int, free_fraction: float, reserve: int | None, weights: Mapping[str, int]) -> int:
    """What both KV caches may take: a reserve in bytes, or else a fraction of what the weights leave."""
    left = total - sum(weights.values())
    return left - reserve if reserve is not None else int(left * free_fraction)


def unquantized_bytes(here: Known, dtype: str) -> int:
    return here.facts.parameters * BYTES[dtype]


def stored_bytes(model: Checkpoint, here: Known) -> int:
    """Of the model as the spec wants it quantized."""
    dtype = pack_dtype(model.dtype, here.facts)
    return weights_bytes(here.facts.config, here.facts.parameters, dtype, model.quantization)


def memory_of(
    spec: Spec, known: Mapping[str, Known | None], runtime: Runtime, memory_bytes: int | None
) -> dict[str, ModelMemory | None]:
    """By role; None where the model is not on disk. KV tokens are known when all models are."""
    roles = models_of(spec)
    here = {role: value for role in roles if (value := known.get(role)) is not None}
    sizes = {role: _sizes(roles[role], value, runtime) for role, value in here.items()}
    tokens = _kv_tokens(spec, here, runtime, memory_bytes, sizes) if len(here) == len(roles) else None
    return {role: _model_memory(sizes[role], tokens) if role in here else None for role in roles}


@dataclass(frozen=True)
class _Sizes:
    weights: int
    per_token: int
    gpus: int


def _sizes(model: Checkpoint, here: Known, runtime: Runtime) -> _Sizes:
    dtype = pack_dtype(model.dtype, here.facts)
    if runtime == "reference":  # one device, and quantized values are run in dtype
        return _Sizes(unquantized_bytes(here, dtype), kv_bytes_per_token(here.facts.config, dtype, Quantization()), 1)
    per_token = kv_bytes_per_token(here.facts.config, dtype, model.quantization)
    return _Sizes(stored_bytes(model, here), per_token, model.tensor_parallel * model.pipeline_parallel)


def _model_memory(sizes: _Sizes, tokens: int | None) -> ModelMemory:
    kv_bytes = None if tokens is None else tokens * sizes.per_token
    return ModelMemory(sizes.weights, sizes.per_token, kv_bytes, tokens)


def _kv_tokens(
    spec: Spec,
    here: Mapping[str, Known],
    runtime: Runtime,
    memory_bytes: int | None,
    sizes: Mapping[str, _Sizes],
) -> int | None:
    limits, gpu = limits_of(spec, here["target"].facts), spec.limits.gpu_memory
    if runtime == "reference":
        if spec.limits.kv_tokens is not None:
            return max(spec.limits.kv_tokens, limits.max_seq_len)
        if memory_bytes is None:
            return None
        fits = shared_kv_tokens(memory_bytes // 2, {role: size.per_token for role, size in sizes.items()})
        return max(limits.max_seq_len, min(fits, limits.max_batch_size * limits.max_seq_len))
    total = gpu.total_bytes or memory_bytes
    if total is None:
        return None
    # the GPU that holds a share of every model decides
    weights = {role: size.weights // size.gpus for role, size in sizes.items()}
    per_token = {role: -(-size.per_token // size.gpus) for role, size in sizes.items()}
    return shared_kv_tokens(kv_budget(total, gpu.free_fraction, gpu.reserve_bytes, weights), per_token)


def human_bytes(count: int) -> str:
    value = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
