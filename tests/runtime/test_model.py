"""The decoder against Hugging Face transformers on tiny random models, and the compiled kernels against torch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.runtime.packed import config, random_checkpoint, write
from trtspec.runtime.batch import Span
from trtspec.runtime.cache import SpanAllocator, allocate_cache
from trtspec.runtime.config import ModelConfig, RopeConfig
from trtspec.runtime.engine import open_decoder
from trtspec.runtime.options import EngineOptions
from trtspec.runtime.rope import inverse_frequencies
from trtspec.runtime.score import score

ROPES: dict[str, tuple[RopeConfig, dict[str, object]]] = {
    "default": (RopeConfig(theta=10000.0), {"rope_type": "default", "rope_theta": 10000.0}),
    "linear": (
        RopeConfig("linear", 10000.0, 4.0),
        {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
    ),
    "dynamic": (
        RopeConfig("dynamic", 10000.0, 2.0, original_max_positions=64),
        {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0},
    ),
    "llama3": (
        RopeConfig("llama3", 10000.0, 4.0, 32, 1.0, 4.0),
        {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    ),
    "yarn": (
        RopeConfig("yarn", 10000.0, 4.0, 16),
        {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16},
    ),
}


def _hugging_face(model: ModelConfig, rope: dict[str, object]) -> torch.nn.Module:
    import transformers

    kinds = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
    kind = kinds[model.family]
    extra: dict[str, object] = {}
    if model.family == "mistral":
        extra["sliding_window"] = model.sliding_window
    settings = getattr(transformers, f"{kind}Config")(
        vocab_size=model.vocab_size,
        hidden_size=model.hidden_size,
        intermediate_size=model.intermediate_size,
        num_hidden_layers=model.num_layers,
        num_attention_heads=model.num_heads,
        num_key_value_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        rms_norm_eps=model.norm_eps,
        max_position_embeddings=64,
        rope_parameters=rope,
        tie_word_embeddings=model.tied,
        attn_implementation="eager",
        **extra,
    )
    network = getattr(transformers, f"{kind}ForCausalLM")(settings)
    return network.eval()  # type: ignore[no-any-return]


def _load(network: torch.nn.Module, folder: Path, model: ModelConfig) -> None:
    """Puts the packed tensors into the Hugging Face network."""
    from trtspec.runtime.weights import map_safetensors

    packed = map_safetensors(folder / "model.safetensors")
    state = {"model.embed_tokens.weight": packed["embed.weight"], "model.norm.weight": packed["norm.weight"]}
    state["lm_head.weight"] = packed.get("lm_head.weight", packed["embed.weight"])
    sizes = [model.num_heads * model.head_dim, *[model.num_kv_heads * model.head_dim] * 2]
    for i in range(model.num_layers):
        ours, theirs = f"layers.{i}.", f"model.layers.{i}."
        for kind in ("weight", "bias"):
            if f"{ours}qkv.{kind}" in packed:
                for name, part in zip("qkv", packed[f"{ours}qkv.{kind}"].split(sizes), strict=True):
                    state[f"{theirs}self_attn.{name}_proj.{kind}"] = part
        for name in ("q_norm", "k_norm"):
            if f"{ours}{name}.weight" in packed:
                state[f"{theirs}self_attn.{name}.weight"] = packed[f"{ours}{name}.weight"]
        gate, up = packed[f"{ours}gate_up.weight"].chunk(2)
        state |= {
            f"{theirs}self_attn.o_proj.weight": packed[f"{ours}o.weight"],
            f"{theirs}mlp.gate_proj.weight": gate,
            f"{theirs}mlp.up_proj.weight": up,
            f"{theirs}mlp.down_proj.weight": packed[f"{ours}down.weight"],
            f"{theirs}input_layernorm.weight": packed[f"{ours}attn_norm.weight"],
            f"{theirs}post_attention_layernorm.weight": packed[f"{ours}mlp_norm.weight"],
        }
    network.load_state_dict({name: tensor.clone() for name, tensor in state.items()})


FAMILIES = {
    "llama": config(),
    "llama-tied": config(tied=True),
    "mistral": config(family="mistral", sliding_window=7),
    "qwen2": config(family="qwen2", qkv_bias=True),
    "qwen3": config(family="qwen3", qk_norm=True, head_dim=16),
}
CASES = [(name, "default") for name in FAMILIES] + [("llama", rope) for rope in ROPES if rope != "default"]


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(("family", "rope"), CASES)
def test_logits_equal_transformers(family: str, rope: str, native: bool, tmp_path: Path, kernels: str) -> None:
    ours, theirs = ROPES[rope]
    model = ModelConfig(**{**FAMILIES[family].__dict__, "rope": ours})
    folder = random_checkpoint(tmp_path, model, seed=5)
    network = _hugging_face(model, theirs)
    _load(network, folder, model)
    ids = torch.randint(64, (1, 40), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        want = network(ids).logits[0]
    options = EngineOptions(str(folder), max_seq_len=40, kernels=kernels if native else None)
    for rows in (1, 5, 40):
        got = score(options, ids[0].tolist(), rows)
        assert torch.allclose(got, want, atol=3e-4, rtol=1e-4), (got - want).abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("hidden", "head", "inner"), [(32, 8, 48), (96, 24, 80), (160, 64, 200), (72, 10, 33)])
def test_kernels_equal_torch(
    dtype: torch.dtype, hidden: int, head: int, inner: int, tmp_path: Path, kernels: str
) -> None:
    """Sizes with and without tails; a pass that mixes sequences of different lengths."""
    model = config(
        hidden_size=hidden, head_dim=head, intermediate_size=inner, qkv_bias=True, qk_norm=True, vocab_size=77
    )
    folder = random_checkpoint(tmp_path, model, seed=4, dtype=dtype, scale=0.15)
    results = []
    for library in (None, kernels):
        options = EngineOptions(str(folder), max_seq_len=64, kernels=library)
        _, decoder = open_decoder(options, str(folder))
        cache = allocate_cache(model, 200, dtype, torch.device("cpu"))
        first = [Span([1, 2, 3, 4, 5], 0, 0, 5), Span(list(range(33)), 100, 0, 32)]
        decoder.forward(first, cache)
        second = [Span([6, 7, 8], 0, 5, 0), Span([9], 100, 33, 0), Span(list(range(11)), 50, 0, 9)]
        results.append(decoder.forward(second, cache))
    tolerance = 1e-4 if dtype == torch.float32 else 0.05 * float(results[0].abs().max())
    assert torch.allclose(results[0], results[1], atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_rows_result_is_bit_identical_in_any_company(dtype: torch.dtype, tmp_path: Path, kernels: str) -> None:
    folder = random_checkpoint(tmp_path, config(hidden_size=72, head_dim=24, intermediate_size=100), 6, dtype)
    options = EngineOptions(str(folder), max_seq_len=64, kernels=kernels)
    ids = torch.randint(64, (48,), generator=torch.Generator().manual_seed(3)).tolist()
    alone = score(options, ids, 1)
    for rows in range(2, 18):
        assert torch.equal(score(options, ids, rows), alone)


def test_a31_llama3_rope() -> None:
    rope = RopeConfig("llama3", 10000.0, 4.0, 64, 1.0, 4.0)
    got = inverse_frequencies(rope, 8, 64)
    assert got.tolist() == pytest.approx([1, 0.025465, 0.0025, 0.00025], rel=1e-4)
    assert inverse_frequencies(RopeConfig(), 8, 64).tolist() == pytest.approx([1, 0.1, 0.01, 0.001])


def test_a30_a_tied_matrix_is_the_embedding(tmp_path: Path) -> None:
    model = config(tied=True)
    tied = random_checkpoint(tmp_path / "tied", model, seed=8)
    from trtspec.runtime.weights import map_safetensors

    tensors = map_safetensors(tied / "model.safetensors")
    untied = write(
        tmp_path / "untied", config(tied=False), {**tensors, "lm_head.weight": tensors["embed.weight"].clone()}
    )
    ids = [1, 5, 9]
    options = EngineOptions(str(tied), max_seq_len=16)
    assert torch.equal(score(options, ids, 3), score(EngineOptions(str(untied), max_seq_len=16), ids, 3))


def test_spans_are_first_fit_and_merge() -> None:
    memory = SpanAllocator(10)
    spans = [(memory.take(n), n) for n in (3, 3, 4)]
    assert [start for start, _ in spans] == [0, 3, 6]
    assert memory.take(1) is None
    memory.give_back(0, 3)
    memory.give_back(6, 4)
    assert memory.take(5) is None  # seven are free, but not side by side
    memory.give_back(3, 3)
    assert (memory.used, memory.take(10)) == (0, 0)
