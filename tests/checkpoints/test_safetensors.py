from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from tests import toys
from trtspec.checkpoints import safetensors as ours
from trtspec.checkpoints.values import whole
from trtspec.errors import CheckpointError


def test_reads_what_the_safetensors_library_wrote(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(5, np.float16)}
    safetensors.numpy.save_file(arrays, tmp_path / "model.safetensors", metadata={"format": "pt"})
    tensors = ours.read_folder(tmp_path)
    assert tensors.keys() == arrays.keys()
    for name, values in arrays.items():
        np.testing.assert_array_equal(whole(tensors[name]), values)


def header(file: Path, entries: object, data: bytes = bytes(16)) -> Path:
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return file


def entry(**changes: object) -> dict[str, object]:
    return {"t": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16], **changes}}


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (b"not json", "its header is not JSON"),
        (b"[" * 100_000, "its header is not JSON"),
        (b"[]", "is not a JSON object"),
        ({"t": 1}, "lacks dtype, shape or data_offsets"),
        ({"t": {"dtype": "F32", "shape": [2], "data_offsets": [0]}}, "lacks dtype, shape or data_offsets"),
        (entry(dtype="F7"), "the unknown dtype 'F7'"),
        (entry(shape=[-2, -2]), "no count"),
        (entry(shape=[2.0, 2]), "no count"),
        (entry(shape=[2, 3]), r"of shape \[2, 3\] and dtype F32 takes 16 bytes"),
        (entry(shape=[1 << 62, 4], data_offsets=[0, 1 << 66]), "ends at byte"),
        (entry(data_offsets=[16, 32]), "ends at byte"),
    ],
)
def test_damaged_headers(tmp_path: Path, entries: object, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        ours.read_header(header(tmp_path / "model.safetensors", entries))


@pytest.mark.parametrize("data", [b"", b"1234", (1 << 63).to_bytes(8, "little"), (90).to_bytes(8, "little") + b"{}"])
def test_a_length_that_does_not_fit(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(data)
    with pytest.raises(CheckpointError, match="does not fit"):
        ours.read_header(file)


def test_fp8_is_known_by_name(tmp_path: Path) -> None:
    file = header(tmp_path / "m", {"t": {"dtype": "F8_E4M3", "shape": [4, 4], "data_offsets": [0, 16]}})
    assert ours.read_header(file)["t"].dtype == "float8_e4m3fn"


def test_a30_c_the_index_wins_over_a_stray_file(tmp_path: Path) -> None:
    folder = toys.random_checkpoint(tmp_path, seed=0, shards=2)
    names = ours.read_folder(folder)
    for stray in ("consolidated.safetensors", "model.safetensors"):
        toys.write_safetensors(folder / stray, {name: np.full(t.shape, 9.0, np.float32) for name, t in names.items()})
    again = ours.read_folder(folder)
    assert again == names
    assert {tensor.file.name for tensor in again.values()} == {
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    }


def test_a30_d_an_absent_shard_is_named(tmp_path: Path) -> None:
    folder = toys.random_checkpoint(tmp_path, shards=2)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model-00002-of-00002\.safetensors is missing"):
        ours.read_folder(folder)


def test_a_tensor_that_is_not_in_its_shard_is_named(tmp_path: Path) -> None:
    folder = toys.random_checkpoint(tmp_path, shards=2)
    first, second = (folder / f"model-0000{n}-of-00002.safetensors" for n in (1, 2))
    second.write_bytes(first.read_bytes())
    with pytest.raises(CheckpointError, match=r"tensor model\..* is not in model-00002-of-00002\.safetensors"):
        ours.read_folder(folder)


@pytest.mark.parametrize("shard", ["../model.safetensors", "/etc/passwd", "a/b.safetensors", "..", ""])
def test_a_shard_cannot_leave_the_folder(tmp_path: Path, shard: str) -> None:
    toys.write_json(tmp_path / "model.safetensors.index.json", {"weight_map": {"t": shard}})
    with pytest.raises(CheckpointError, match="leaves the folder"):
        ours.read_folder(tmp_path)


@pytest.mark.parametrize(
    ("file", "hint"),
    [("pytorch_model.bin", "save the model as safetensors"), ("m.gguf", "name the file itself"), ("x", "fetch")],
)
def test_a_folder_without_weights_says_what_to_do(tmp_path: Path, file: str, hint: str) -> None:
    (tmp_path / file).touch()
    with pytest.raises(CheckpointError, match="no weights") as caught:
        ours.read_folder(tmp_path)
    assert caught.value.hint is not None and hint in caught.value.hint
