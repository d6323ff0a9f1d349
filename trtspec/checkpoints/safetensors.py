"""Safetensors headers: 8 bytes of length, a JSON object, the data. No numpy here.

Format: https://huggingface.co/docs/safetensors/index, "Format".
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtspec.checkpoints.tensor import Tensor
from trtspec.errors import CheckpointError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_HEADER_BYTES = 100_000_000  # the format's own limit

_DTYPES: dict[str, tuple[str, int]] = {  # name in the file: (our name, bits of one element)
    "F64": ("float64", 64),
    "F32": ("float32", 32),
    "F16": ("float16", 16),
    "BF16": ("bfloat16", 16),
    "F8_E4M3": ("float8_e4m3fn", 8),
    "F8_E5M2": ("float8_e5m2", 8),
    "F8_E8M0": ("float8_e8m0fnu", 8),
    "F4": ("float4_e2m1fn", 4),
    "I64": ("int64", 64),
    "U64": ("uint64", 64),
    "I32": ("int32", 32),
    "U32": ("uint32", 32),
    "I16": ("int16", 16),
    "U16": ("uint16", 16),
    "I8": ("int8", 8),
    "U8": ("uint8", 8),
    "BOOL": ("bool", 8),
}


def read_header(file: Path) -> dict[str, Tensor]:
    """Every tensor of one file; each lies inside the file and is as long as its shape says."""
    try:
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            length = int.from_bytes(stream.read(8), "little")
            if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
                raise _broken(file, f"its header of {length} bytes does not fit in {size} bytes")
            text = stream.read(length)
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error.strerror}", where=str(file)) from error
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _broken(file, "its header is not JSON") from error
    if not isinstance(entries, dict):
        raise _broken(file, "its header is not a JSON object")
    return {
        name: _tensor(file, name, entry, 8 + length, size) for name, entry in entries.items() if name != "__metadata__"
    }


def read_folder(folder: Path) -> dict[str, Tensor]:
    """The tensors of a model folder: those the index lists, else those of model.safetensors. No other file counts."""
    if (folder / INDEX).is_file():
        return _read_sharded(folder)
    if (folder / SINGLE).is_file():
        return read_header(folder / SINGLE)
    raise CheckpointError(
        f"no weights in {folder}: neither {INDEX} nor {SINGLE} is there",
        where=str(folder),
        hint=_weights_hint(folder),
    )


def weight_files(folder: Path) -> list[Path]:
    """The files that ``read_folder`` would read, the index among them, whether they exist or not."""
    index = folder / INDEX
    if index.is_file():
        return [index, *(folder / shard for shard in sorted(set(_weight_map(index).values())))]
    return [folder / SINGLE]


def _read_sharded(folder: Path) -> dict[str, Tensor]:
    weight_map = _weight_map(folder / INDEX)
    headers = {shard: _read_shard(folder, shard) for shard in sorted(set(weight_map.values()))}
    tensors = {}
    for name, shard in weight_map.items():
        if name not in headers[shard]:
            raise CheckpointError(
                f"tensor {name} is not in {shard}, where {INDEX} says it is",
                where=str(folder / shard),
                hint="fetch the shard and the index again, they do not belong together",
            )
        tensors[name] = headers[shard][name]
    return tensors


def _weight_map(index: Path) -> Mapping[str, str]:
    try:
        content = json.loads(index.read_bytes())
        weight_map = content["weight_map"]
        pairs = {str(name): str(shard) for name, shard in weight_map.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _broken(index, "it is no index with a weight_map") from error
    for shard in pairs.values():
        if Path(shard).name != shard or shard in ("", ".", ".."):
            raise _broken(index, f"shard name {shard!r} leaves the folder")
    return pairs


def _read_shard(folder: Path, shard: str) -> dict[str, Tensor]:
    file = folder / shard
    if not file.is_file():
        raise CheckpointError(
            f"{shard} is missing in {folder}: {INDEX} names it",
            where=str(file),
            hint="fetch the missing shard",
        )
    return read_header(file)


def _tensor(file: Path, name: str, entry: Any, data_start: int, file_size: int) -> Tensor:
    try:
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise _broken(file, f"the entry of tensor {name} lacks dtype, shape or data_offsets") from error
    if dtype not in _DTYPES:
        raise _broken(file, f"tensor {name} has the unknown dtype {dtype!r}")
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
        raise _broken(file, f"tensor {name} has a shape or an offset that is no count")
    name_of_dtype, bits = _DTYPES[dtype]
    if math.prod(shape) * bits != (end - begin) * 8:
        raise _broken(file, f"tensor {name} of shape {list(shape)} and dtype {dtype} takes {end - begin} bytes")
    if data_start + end > file_size:
        raise _broken(file, f"tensor {name} ends at byte {data_start + end}, the file at {file_size}")
    return Tensor(name, name_of_dtype, shape, file, data_start + begin, end - begin)


def _weights_hint(folder: Path) -> str:
    ggufs = sorted(file.name for file in folder.glob("*.gguf"))
    if ggufs:
        return f"name the file itself: {folder / ggufs[0]}"
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt")):
        return "pickled weights are not read; save the model as safetensors"
    return "fetch the model's *.safetensors files into the folder"


def _broken(file: Path, why: str) -> CheckpointError:
    return CheckpointError(f"{file.name} is damaged: {why}", where=str(file), hint="fetch the file again")
