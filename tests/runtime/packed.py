"""Packed checkpoints made of nothing: random ones, and bigram ones (the last id alone decides the next)."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file

from trtspec.runtime.config import PACKED_CONFIG, PACKED_WEIGHTS, ModelConfig, RopeConfig


def config(**changes: object) -> ModelConfig:
    values: dict[str, object] = {
        "family": "llama",
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 8,
        "norm_eps": 1e-5,
        "max_positions": 256,
        "rope": RopeConfig(),
    }
    return ModelConfig(**{**values, **changes})  # type: ignore[arg-type]


def write(folder: Path, model: ModelConfig, tensors: dict[str, torch.Tensor]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PACKED_CONFIG).write_text(model.to_json())
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / PACKED_WEIGHTS)
    return folder


def random_checkpoint(
    folder: Path, model: ModelConfig, seed: int = 0, dtype: torch.dtype = torch.float32, scale: float = 0.3
) -> Path:
    """Every matrix normal with ``scale``; logits spread enough that greedy choices are not near ties."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape, generator=generator) * scale).to(dtype)

    c = model
    tensors = {"embed.weight": normal(c.vocab_size, c.hidden_size), "norm.weight": torch.ones(c.hidden_size)}
    if not c.tied:
        tensors["lm_head.weight"] = normal(c.vocab_size, c.hidden_size)
    for i in range(c.num_layers):
        width = (c.num_heads + 2 * c.num_kv_heads) * c.head_dim
        layer = {
            "attn_norm.weight": torch.rand(c.hidden_size, generator=generator) + 0.5,
            "mlp_norm.weight": torch.rand(c.hidden_size, generator=generator) + 0.5,
            "qkv.weight": normal(width, c.hidden_size),
            "o.weight": normal(c.hidden_size, c.num_heads * c.head_dim),
            "gate_up.weight": normal(2 * c.intermediate_size, c.hidden_size),
            "down.weight": normal(c.hidden_size, c.intermediate_size),
        }
        if c.qkv_bias:
            layer["qkv.bias"] = normal(width)
        if c.qk_norm:
            layer["q_norm.weight"] = torch.rand(c.head_dim, generator=generator) + 0.5
            layer["k_norm.weight"] = torch.rand(c.head_dim, generator=generator) + 0.5
        tensors.update({f"layers.{i}.{name}": tensor for name, tensor in layer.items()})
    return write(folder, model, tensors)


def bigram_checkpoint(folder: Path, table: torch.Tensor) -> Path:
    """``table`` [V, V]: row = last id, column = logit of the next one. One layer whose outputs are zero; embeddings are
    one-hot, so the normalised hidden state is sqrt(V) times the last id's unit vector."""
    vocab = table.shape[0]
    model = config(vocab_size=vocab, hidden_size=vocab, intermediate_size=8, num_layers=1, num_heads=1,
                   num_kv_heads=1, norm_eps=1e-12)  # fmt: skip
    zeros = torch.zeros
    tensors = {
        "embed.weight": torch.eye(vocab),
        "norm.weight": torch.full((vocab,), vocab**-0.5),
        "lm_head.weight": table.T.contiguous().float(),
        "layers.0.attn_norm.weight": torch.ones(vocab),
        "layers.0.mlp_norm.weight": torch.ones(vocab),
        "layers.0.qkv.weight": zeros(24, vocab),
        "layers.0.o.weight": zeros(vocab, 8),
        "layers.0.gate_up.weight": zeros(16, vocab),
        "layers.0.down.weight": zeros(vocab, 8),
    }
    return write(folder, model, tensors)


def chain_table(vocab: int, follows: dict[int, int], logit: float = 10.0) -> torch.Tensor:
    """A bigram table in which ``a`` is followed by ``follows[a]``."""
    table = torch.zeros(vocab, vocab)
    for before, after in follows.items():
        table[before, after] = logit
    return table
