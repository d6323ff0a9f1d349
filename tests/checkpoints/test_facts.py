from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests import toys
from trtspec.checkpoints.facts import read_facts
from trtspec.checkpoints.layout import required_tensors
from trtspec.errors import CheckpointError
from trtspec.runtime.config import ModelConfig


def edit(file: Path, **changes: object) -> None:
    toys.write_json(file, {**json.loads(file.read_text()), **changes})


def rewrite(folder: Path, **changes: np.ndarray | None) -> None:
    """Tensors replaced, added or (None) dropped; ``__`` in a name is a dot."""
    from trtspec.checkpoints.safetensors import read_folder
    from trtspec.checkpoints.values import whole

    arrays = {name: whole(tensor) for name, tensor in read_folder(folder).items()}
    for key, values in changes.items():
        name = key.replace("__", ".")
        if values is None:
            del arrays[name]
        else:
            arrays[name] = values
    toys.write_safetensors(folder / "model.safetensors", arrays)


def test_facts_of_a_folder(tmp_path: Path) -> None:
    facts = read_facts(toys.random_checkpoint(tmp_path, dtype="bfloat16", end_ids=(1, 5)))
    assert facts.format == "safetensors"
    assert (facts.dtype, facts.quantization) == ("bfloat16", None)
    assert facts.end_ids == (1, 5)
    assert facts.bos_id == toys.BEGIN
    assert facts.config.vocab_size == 64
    assert facts.tensors["model.layers.1.self_attn.k_proj.weight"] == ("bfloat16", (16, 32))
    assert facts.parameters == sum(int(np.prod(shape)) for _, shape in facts.tensors.values())
    assert facts.weights_bytes == 2 * facts.parameters


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_dtype_is_the_checkpoints_own(tmp_path: Path, dtype: toys.Dtype) -> None:
    assert read_facts(toys.random_checkpoint(tmp_path, dtype=dtype)).dtype == dtype


def test_end_ids_come_from_generation_config_else_config(tmp_path: Path) -> None:
    folder = toys.random_checkpoint(tmp_path)
    edit(folder / "config.json", eos_token_id=[7, 8])
    edit(folder / "generation_config.json", eos_token_id=3)
    assert read_facts(folder).end_ids == (3,)
    (folder / "generation_config.json").unlink()
    assert read_facts(folder).end_ids == (7, 8)
    edit(folder / "config.json", eos_token_id=None)
    assert read_facts(folder).end_ids == ()


def test_a30_a_tied_without_output_matrix(tmp_path: Path) -> None:
    folder = toys.random_checkpoint(tmp_path, tied=True)
    facts = read_facts(folder)
    assert facts.config.tied
    assert "lm_head.weight" not in facts.tensors


def test_a30_b_untied_without_output_matrix_names_the_tensor(tmp_path: Path) -> None:
    folder = toys.random_checkpoint(tmp_path)
    rewrite(folder, lm_head__weight=None)
    with pytest.raises(CheckpointError, match=r"tensor lm_head\.weight is missing") as caught:
        read_facts(folder)
    assert caught.value.hint is not None and "tie_word_embeddings" in caught.value.hint


def test_a_shape_is_told_beside_the_one_that_is_wanted(tmp_path: Path) -> None:
    folder = toys.random_checkpoint(tmp_path)
    edit(folder / "config.json", vocab_size=66)
    with pytest.raises(
        CheckpointError, match=r"model\.embed_tokens\.weight has the shape \[64, 32\], .* asks for \[66, 32\]"
    ):
        read_facts(folder)


def test_many_missing_tensors_are_counted(tmp_path: Path) -> None:
    folder = toys.random_checkpoint(tmp_path)
    edit(folder / "config.json", num_hidden_layers=3)
    with pytest.raises(
        CheckpointError, match=r"tensor model\.layers\.2\.input_layernorm\.weight is missing and 8 more"
    ):
        read_facts(folder)


def test_tensors_without_a_place_are_refused(tmp_path: Path) -> None:
    """A bias that nobody would add changes every logit; a buffer of frequencies changes nothing."""
    folder = toys.random_checkpoint(tmp_path)
    buffer = {"model__layers__0__self_attn__rotary_emb__inv_freq": np.ones(4, np.float32)}
    rewrite(folder, **buffer)
    read_facts(folder)
    rewrite(folder, model__layers__1__self_attn__q_proj__bias=np.ones(32, np.float32))
    with pytest.raises(CheckpointError, match=r"no place in a llama decoder: model\.layers\.1\.self_attn\.q_proj"):
        read_facts(folder)


def test_layers_beyond_the_decoder_are_left_alone(tmp_path: Path) -> None:
    folder = toys.random_checkpoint(tmp_path)
    rewrite(folder, model__layers__2__eh_proj__weight=np.ones((2, 2), np.float32))
    assert read_facts(folder).config.num_layers == 2


def test_fp8_weights_are_a_fact(tmp_path: Path) -> None:
    folder = toys.random_checkpoint(tmp_path)
    rewrite(folder, model__layers__0__mlp__up_proj__weight=np.zeros((64, 32), np.uint8))  # written as F8_E4M3
    assert read_facts(folder).quantization == "fp8"


def test_a_declared_quantizer(tmp_path: Path) -> None:
    folder = toys.random_checkpoint(tmp_path)
    edit(folder / "config.json", quantization_config={"quant_method": "fp8"})
    assert read_facts(folder).quantization == "fp8"
    edit(folder / "config.json", quantization_config={"quant_method": "gptq", "bits": 4})
    with pytest.raises(CheckpointError, match="quantized by 'gptq' are not read"):
        read_facts(folder)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "config.json").unlink(), r"config\.json is missing"),
        (lambda folder: (folder / "config.json").write_text("{"), r"config\.json is not JSON"),
        (lambda folder: (folder / "config.json").write_text("[]"), r"config\.json is not a JSON object"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no weights"),
    ],
)
def test_folders_that_are_no_checkpoints(tmp_path: Path, spoil, words: str) -> None:  # type: ignore[no-untyped-def]
    folder = toys.random_checkpoint(tmp_path / "m")
    spoil(folder)
    with pytest.raises(CheckpointError, match=words):
        read_facts(folder)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        read_facts(tmp_path / "nowhere")


def sparse_checkpoint(folder: Path, shards: int) -> ModelConfig:
    """Llama-3.1-70B's own sizes: real headers over files of holes."""
    config = ModelConfig("llama", 128256, 8192, 28672, 80, 64, 8, 128, 1e-5, 131072)
    folder.mkdir()
    toys.write_json(folder / "config.json", toys.hf_config(config, "bfloat16"))
    names = list(required_tensors(config, "huggingface").items())
    weight_map = {}
    for shard in range(shards):
        file = folder / f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        entries, end = {}, 0
        for name, shape in names[shard::shards]:
            nbytes = 2 * int(np.prod(shape))
            entries[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + nbytes]}
            end += nbytes
            weight_map[name] = file.name
        text = json.dumps(entries).encode()
        file.write_bytes(len(text).to_bytes(8, "little") + text)
        os.truncate(file, 8 + len(text) + end)
    toys.write_json(folder / "model.safetensors.index.json", {"weight_map": weight_map})
    return config


def test_seventy_billion_parameters_from_headers_alone(tmp_path: Path) -> None:
    config = sparse_checkpoint(tmp_path / "big", 30)
    facts = read_facts(tmp_path / "big")
    assert facts.config == config
    assert facts.parameters == 70_553_706_496
    assert facts.weights_bytes == 2 * facts.parameters


def test_headers_are_read_without_anything_heavy(tmp_path: Path) -> None:
    folder = toys.random_checkpoint(tmp_path / "m")
    code = (
        "import sys; from pathlib import Path; from trtspec.checkpoints import sources; "
        "from trtspec.checkpoints.facts import read_facts; read_facts(Path(sys.argv[1])); "
        "heavy = {'torch', 'numpy', 'tokenizers', 'transformers', 'jinja2', 'huggingface_hub'} & set(sys.modules); "
        "print(*sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
