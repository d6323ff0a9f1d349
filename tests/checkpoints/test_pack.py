from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers

from tests import toys
from tests.checkpoints.gguf_files import gguf_tensors, model_metadata, q8_0, vocabulary_metadata, write_gguf
from trtspec.checkpoints.facts import read_facts
from trtspec.checkpoints.pack import pack, pack_weights
from trtspec.checkpoints.safetensors import read_folder
from trtspec.checkpoints.tokenizer import load_tokenizer
from trtspec.checkpoints.values import ComputeDtype, whole
from trtspec.errors import CheckpointError
from trtspec.runtime.config import ModelConfig, RopeConfig

TORCH = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
SIZES = {
    "vocab_size": 66,  # odd in every alignment
    "hidden_size": 32,
    "intermediate_size": 50,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "max_position_embeddings": 64,
}


def transformers_model(folder: Path, family: str, *, tied: bool = False) -> dict[str, torch.Tensor]:
    """A random model as transformers saves it."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **SIZES, tie_word_embeddings=tied)
    if family == "llama":
        config.attention_bias = config.mlp_bias = True
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    model.save_pretrained(folder)
    return model.state_dict()


def expected_tensors(state: dict[str, torch.Tensor], layers: int, tied: bool) -> dict[str, torch.Tensor]:
    """The packed names, written out independently."""
    expected = {"embed.weight": state["model.embed_tokens.weight"], "norm.weight": state["model.norm.weight"]}
    if not tied:
        expected["lm_head.weight"] = state["lm_head.weight"]
    for layer in range(layers):
        theirs, ours = f"model.layers.{layer}.", f"layers.{layer}."
        fused = {
            "attn_norm": ["input_layernorm"],
            "mlp_norm": ["post_attention_layernorm"],
            "qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
            "o": ["self_attn.o_proj"],
            "gate_up": ["mlp.gate_proj", "mlp.up_proj"],
            "down": ["mlp.down_proj"],
            "q_norm": ["self_attn.q_norm"],
            "k_norm": ["self_attn.k_norm"],
        }
        for name, parts in fused.items():
            for kind in ("weight", "bias"):
                if f"{theirs}{parts[0]}.{kind}" in state:
                    expected[f"{ours}{name}.{kind}"] = torch.cat([state[f"{theirs}{part}.{kind}"] for part in parts])
    return expected


def packed_tensors(folder: Path) -> dict[str, torch.Tensor]:
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    return {name: values for name, values in tensors.items() if not name.startswith("pad.")}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_transformers_models_come_out_fused_and_rounded(tmp_path: Path, family: str, dtype: ComputeDtype) -> None:
    state = transformers_model(tmp_path / "hf", family)
    pack_weights(tmp_path / "hf", tmp_path / "out", dtype)
    packed = packed_tensors(tmp_path / "out")
    expected = expected_tensors(state, 2, tied=False)
    assert packed.keys() == expected.keys()
    for name, values in expected.items():
        stored = torch.float32 if name.endswith("norm.weight") else TORCH[dtype]
        assert packed[name].dtype == stored
        assert torch.equal(packed[name], values.to(stored)), name
    facts = read_facts(tmp_path / "out")
    config = facts.config
    assert config == read_facts(tmp_path / "hf").config
    assert (facts.format, facts.dtype, facts.parameters) == ("packed", dtype, read_facts(tmp_path / "hf").parameters)


def test_a30_tied_with_an_output_matrix_beside_it(tmp_path: Path) -> None:
    """The same one is left out, another one is refused: which of the two is meant nobody can know."""
    folder = toys.random_checkpoint(tmp_path / "m", tied=True)
    tensors = {name: whole(tensor) for name, tensor in read_folder(folder).items()}
    twin = {"lm_head.weight": tensors["model.embed_tokens.weight"]}
    toys.write_safetensors(folder / "model.safetensors", tensors | twin)
    pack_weights(folder, tmp_path / "out", "float32")
    assert "lm_head.weight" not in packed_tensors(tmp_path / "out")
    other = {"lm_head.weight": tensors["model.embed_tokens.weight"] + 1}
    toys.write_safetensors(folder / "model.safetensors", tensors | other)
    with pytest.raises(CheckpointError, match=r"lm_head\.weight differs from model\.embed_tokens\.weight"):
        pack_weights(folder, tmp_path / "out", "float32")


@pytest.mark.parametrize("shards", [1, 3])
def test_a30_a_tied_weights_are_packed_once(tmp_path: Path, shards: int) -> None:
    toys.random_checkpoint(tmp_path / "m", tied=True, shards=shards)
    pack_weights(tmp_path / "m", tmp_path / "out", "float32")
    packed = packed_tensors(tmp_path / "out")
    assert "lm_head.weight" not in packed
    assert read_facts(tmp_path / "out").config.tied
    embedding = whole(read_folder(tmp_path / "m")["model.embed_tokens.weight"])
    np.testing.assert_array_equal(packed["embed.weight"].numpy(), embedding)


def test_a30_c_values_come_from_the_shards_of_the_index(tmp_path: Path) -> None:
    folder = toys.random_checkpoint(tmp_path / "m", shards=2)
    tensors = read_folder(folder)
    stray = {name: np.full(tensor.shape, 9.0, np.float32) for name, tensor in tensors.items()}
    toys.write_safetensors(folder / "consolidated.safetensors", stray)
    pack_weights(folder, tmp_path / "out", "float32")
    packed = packed_tensors(tmp_path / "out")
    expected = {name: torch.from_numpy(whole(tensor)) for name, tensor in tensors.items()}
    for name, values in expected_tensors(expected, 2, tied=False).items():
        assert torch.equal(packed[name], values)


def test_data_are_aligned_and_the_file_has_no_holes(tmp_path: Path) -> None:
    transformers_model(tmp_path / "hf", "qwen3")
    pack_weights(tmp_path / "hf", tmp_path / "out", "bfloat16")
    file = tmp_path / "out" / "model.safetensors"
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    end = 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, after = entry["data_offsets"]
        assert begin == end
        assert name.startswith("pad.") or (8 + length + begin) % 64 == 0
        end = after
    assert 8 + length + end == len(data)


def test_progress_ends_at_the_whole(tmp_path: Path) -> None:
    toys.random_checkpoint(tmp_path / "m")
    seen: list[tuple[int, int]] = []
    pack_weights(tmp_path / "m", tmp_path / "out", "float32", lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert len({total for _, total in seen}) == 1
    assert seen[-1][0] == seen[-1][1]


def test_a_packed_folder_is_self_contained(tmp_path: Path) -> None:
    folder = toys.random_checkpoint(tmp_path / "m", end_ids=(1, 5))
    pack(folder, tmp_path / "out", "float32")
    facts = read_facts(tmp_path / "out")
    assert (facts.end_ids, facts.bos_id) == ((1, 5), toys.BEGIN)
    before, after = load_tokenizer(folder), load_tokenizer(tmp_path / "out")
    assert after.encode("hello", True) == before.encode("hello", True)
    assert (after.end_ids, after.bos_id, after.chat_template) == (before.end_ids, before.bos_id, before.chat_template)
    messages = [{"role": "user", "content": "hi"}]
    assert after.render_chat(messages) == before.render_chat(messages) == "user:hi</s>assistant:"


def test_a_tokenizer_from_elsewhere(tmp_path: Path) -> None:
    folder = toys.random_checkpoint(tmp_path / "m", vocab=258, tokenizer=False)
    toys.byte_tokenizer(tmp_path / "t")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is missing"):
        pack(folder, tmp_path / "out", "float32")
    pack(folder, tmp_path / "out", "float32", tokenizer=tmp_path / "t")
    assert load_tokenizer(tmp_path / "out").vocab_size == 258


def test_what_cannot_be_packed_is_refused_by_name(tmp_path: Path) -> None:
    folder = toys.random_checkpoint(tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    toys.write_json(folder / "config.json", {**config, "quantization_config": {"quant_method": "fp8"}})
    with pytest.raises(CheckpointError, match="weights quantized to fp8, which cannot be packed"):
        pack_weights(folder, tmp_path / "out", "float32")
    toys.write_json(folder / "config.json", config)
    pack_weights(folder, tmp_path / "out", "float32")
    with pytest.raises(CheckpointError, match="is packed already"):
        pack_weights(tmp_path / "out", tmp_path / "again", "float32")


def test_float16_overflow_names_the_tensor_and_leaves_no_checkpoint(tmp_path: Path) -> None:
    folder = toys.random_checkpoint(tmp_path / "m", scale=1e6)
    with pytest.raises(CheckpointError, match=r"tensor embed\.weight .*float16"):
        pack_weights(folder, tmp_path / "out", "float16")
    with pytest.raises(CheckpointError, match=r"config\.json is missing"):
        read_facts(tmp_path / "out")


def gguf_twin(folder: Path, file: Path, arch: str, *, quantized: bool = False) -> ModelConfig:
    """The same model as a GGUF file."""
    config = read_facts(folder).config
    tensors = {name: whole(tensor) for name, tensor in read_folder(folder).items()}
    converted = gguf_tensors(config, tensors, arch)
    stored = {n: q8_0(v) if quantized and v.ndim == 2 else v for n, v in converted.items()}
    words = vocabulary_metadata(["a", "b", "<s>", "</s>"], [1, 1, 3, 3])
    write_gguf(file, model_metadata(config, arch) | words, stored)
    return config


@pytest.mark.parametrize(
    ("family", "arch"), [("llama", "llama"), ("mistral", "llama"), ("qwen2", "qwen2"), ("qwen3", "qwen3")]
)
@pytest.mark.parametrize("tied", [False, True])
def test_a_gguf_file_packs_to_the_same_bytes_as_its_safetensors_twin(
    tmp_path: Path, family: str, arch: str, tied: bool
) -> None:
    folder = toys.random_checkpoint(tmp_path / "m", family=family, tied=tied)
    config = gguf_twin(folder, tmp_path / "m.gguf", arch)
    pack_weights(folder, tmp_path / "a", "bfloat16")
    pack_weights(tmp_path / "m.gguf", tmp_path / "b", "bfloat16")
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()
    facts = read_facts(tmp_path / "m.gguf")
    assert facts.config == ModelConfig(**{**vars(config), "family": arch})


def test_a_quantized_gguf_file(tmp_path: Path) -> None:
    folder = toys.random_checkpoint(tmp_path / "m")
    gguf_twin(folder, tmp_path / "m.gguf", "llama", quantized=True)
    facts = read_facts(tmp_path / "m.gguf")
    assert (facts.quantization, facts.dtype) == ("Q8_0", "bfloat16")
    pack_weights(folder, tmp_path / "a", "float32")
    pack_weights(tmp_path / "m.gguf", tmp_path / "b", "float32")
    exact, near = packed_tensors(tmp_path / "a"), packed_tensors(tmp_path / "b")
    for name, values in exact.items():
        torch.testing.assert_close(near[name], values, atol=float(values.abs().max()) / 120, rtol=0)


def test_rope_settings_survive(tmp_path: Path) -> None:
    rope = RopeConfig("yarn", 5e5, 4.0, 64, beta_fast=16.0)
    toys.random_checkpoint(tmp_path / "m", rope=rope)
    pack_weights(tmp_path / "m", tmp_path / "out", "float32")
    assert read_facts(tmp_path / "out").config.rope == rope


def test_memory_stays_far_below_the_size_of_a_matrix(tmp_path: Path) -> None:
    folder = toys.random_checkpoint(tmp_path / "m", vocab=200_000, layers=1, tokenizer=False)
    size = (folder / "model.safetensors").stat().st_size
    tracemalloc.start()
    try:
        pack_weights(folder, tmp_path / "out", "bfloat16")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size > 6 * (8 << 20)
    assert peak < 8 << 20
