"""A packed checkpoint, memory-mapped: nothing is copied, and processes share the pages."""

from __future__ import annotations

import json
import mmap
import struct
import warnings
from pathlib import Path

import torch

from trtspec.errors import CheckpointError
from trtspec.runtime.config import PACKED_CONFIG, PACKED_WEIGHTS, ModelConfig

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def load_packed(folder: Path) -> tuple[ModelConfig, dict[str, torch.Tensor]]:
    """The architecture and its tensors (names and shapes in config.py). Raises CheckpointError."""
    try:
        config = ModelConfig.from_dict(json.loads((folder / PACKED_CONFIG).read_text(encoding="utf-8")))
        tensors = map_safetensors(folder / PACKED_WEIGHTS)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{folder} is not a packed checkpoint: {error}", where=str(folder), hint="run `trtspec build` again"
        ) from error
    return config, tensors


def map_safetensors(path: Path) -> dict[str, torch.Tensor]:
    """Name -> tensor that views the mapped file. Format: u64 header length, JSON header, data."""
    with path.open("rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that a read-only buffer could be written to; we never do
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + length])
        tensors = {}
        for name, info in header.items():
            if name == "__metadata__":
                continue
            begin, end = info["data_offsets"]
            dtype = DTYPES[info["dtype"]]
            count = (end - begin) // dtype.itemsize
            flat = torch.frombuffer(data, dtype=dtype, count=count, offset=8 + length + begin)
            tensors[name] = flat.view(info["shape"])
        return tensors
