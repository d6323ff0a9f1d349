"""Writes small GGUF files (version 3, little-endian) from plain values."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trtspec.checkpoints.gguf import TYPES
from trtspec.checkpoints.layout import packed_tensors, source_name
from trtspec.runtime.config import ModelConfig

KIND_IDS = {block.name: kind for kind, block in TYPES.items()}
ALIGNMENT = 32
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Typed:
    """A metadata value with a type of its own: ``Typed(4, 7)`` is the uint32 7."""

    kind: int
    value: Any


@dataclass(frozen=True)
class Blob:
    """Raw tensor bytes of a block type; ``shape`` in row-major order."""

    kind: str
    shape: tuple[int, ...]
    data: bytes


def write_gguf(
    file: Path, metadata: Mapping[str, Any], tensors: Mapping[str, Array | Blob], *, version: int = 3
) -> Path:
    blobs = {name: value if isinstance(value, Blob) else _blob(value) for name, value in tensors.items()}
    head = b"GGUF" + struct.pack("<IQQ", version, len(blobs), len(metadata))
    head += b"".join(_string(key) + _value(value) for key, value in metadata.items())
    offset = 0
    for name, blob in blobs.items():
        head += _string(name) + struct.pack("<I", len(blob.shape))
        head += struct.pack(f"<{len(blob.shape)}Q", *blob.shape[::-1]) + struct.pack("<IQ", KIND_IDS[blob.kind], offset)
        offset += len(blob.data) + -len(blob.data) % ALIGNMENT
    body = b"".join(blob.data + bytes(-len(blob.data) % ALIGNMENT) for blob in blobs.values())
    file.write_bytes(head + bytes(-len(head) % ALIGNMENT) + body)
    return file


def q8_0(values: Array) -> Blob:
    """Quantized to 8 bits; exact when every block of 32 is whole multiples of max/127."""
    grouped = values.astype(np.float32).reshape(-1, 32)
    scales = (np.abs(grouped).max(axis=1, keepdims=True) / 127).astype(np.float16)
    safe = np.where(scales == 0, 1, scales).astype(np.float32)
    quants = np.clip(np.round(grouped / safe), -127, 127).astype(np.int8)
    return Blob("Q8_0", values.shape, np.concatenate((scales.view(np.int8), quants), axis=1).tobytes())


def model_metadata(config: ModelConfig, arch: str) -> dict[str, Any]:
    return {
        "general.architecture": arch,
        f"{arch}.block_count": config.num_layers,
        f"{arch}.context_length": config.max_positions,
        f"{arch}.embedding_length": config.hidden_size,
        f"{arch}.feed_forward_length": config.intermediate_size,
        f"{arch}.attention.head_count": config.num_heads,
        f"{arch}.attention.head_count_kv": config.num_kv_heads,
        f"{arch}.attention.key_length": config.head_dim,
        f"{arch}.attention.value_length": config.head_dim,
        f"{arch}.rope.dimension_count": config.head_dim,
        f"{arch}.rope.freq_base": config.rope.theta,
        f"{arch}.attention.layer_norm_rms_epsilon": config.norm_eps,
    }


def vocabulary_metadata(
    tokens: Sequence[str], types: Sequence[int], merges: Sequence[str] = (), *, pre: str = "gpt-2"
) -> dict[str, Any]:
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": list(tokens),
        "tokenizer.ggml.token_type": [Typed(5, kind) for kind in types],
        "tokenizer.ggml.merges": list(merges),
    }


def gguf_tensors(config: ModelConfig, tensors: Mapping[str, Array], arch: str) -> dict[str, Array]:
    """Hugging Face names and rotary order to GGUF's, as llama.cpp's converter does (q and k in pairs for llama)."""
    converted = {}
    for packed in packed_tensors(config):
        for part in packed.parts:
            values = tensors[source_name(part.role, "huggingface")]
            if part.rotary_heads is not None and arch == "llama":
                halves = values.reshape(part.rotary_heads, 2, -1, *values.shape[1:])
                values = halves.swapaxes(1, 2).reshape(values.shape)
            converted[source_name(part.role, "gguf")] = np.ascontiguousarray(values)
    return converted


def _blob(values: Array) -> Blob:
    kind = {"float32": "float32", "float16": "float16", "uint16": "bfloat16"}[values.dtype.name]
    return Blob(kind, values.shape, values.tobytes())


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    kind, body = _body(value)
    return struct.pack("<I", kind) + body


def _body(value: Any) -> tuple[int, bytes]:
    if isinstance(value, Typed):
        layout = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
        return value.kind, struct.pack(layout[value.kind], value.value)
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, str):
        return 8, _string(value)
    bodies = [_body(item) for item in value]
    kind = bodies[0][0] if bodies else 8
    return 9, struct.pack("<IQ", kind, len(bodies)) + b"".join(body for _, body in bodies)
