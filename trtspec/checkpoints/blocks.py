"""GGUF block types to float32, vectorised. Block layouts: ggml's ggml-common.h and ggml-quants.c (dequantize_row_*).

Each function takes [blocks, bytes of a block] uint8 and gives [blocks, elements of a block] float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from trtspec.checkpoints.gguf import TYPES

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def _half(block: Bytes, at: int) -> Floats:
    """[blocks, 1]: the float16 that lies ``at`` bytes into each block."""
    return np.ascontiguousarray(block[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """[..., n] bytes to [..., 2n]: all low nibbles, then all high nibbles."""
    return np.concatenate((packed & 0x0F, packed >> 4), axis=-1)


def _fifth_bits(block: Bytes, at: int) -> Bytes:
    """[blocks, 32]: bit j of the 32-bit word at ``at``, as 0 or 16."""
    bits: Bytes = np.unpackbits(block[:, at : at + 4], axis=1, bitorder="little")
    return bits << np.uint8(4)


def q4_0(block: Bytes) -> Floats:
    return _half(block, 0) * (_nibbles(block[:, 2:]).astype(np.float32) - 8)


def q4_1(block: Bytes) -> Floats:
    return _half(block, 0) * _nibbles(block[:, 4:]) + _half(block, 2)


def q5_0(block: Bytes) -> Floats:
    quants = _nibbles(block[:, 6:]) | _fifth_bits(block, 2)
    return _half(block, 0) * (quants.astype(np.float32) - 16)


def q5_1(block: Bytes) -> Floats:
    quants = _nibbles(block[:, 8:]) | _fifth_bits(block, 4)
    return _half(block, 0) * quants + _half(block, 2)


def q8_0(block: Bytes) -> Floats:
    return _half(block, 0) * np.ascontiguousarray(block[:, 2:]).view(np.int8)


def _k_scales(packed: Bytes) -> tuple[Bytes, Bytes]:
    """12 bytes hold eight 6-bit scales and eight 6-bit minima: [blocks, 12] to twice [blocks, 8, 1]."""
    low, middle, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate((low & 63, (high & 0x0F) | ((low >> 6) << 4)), axis=1)
    minima = np.concatenate((middle & 63, (high >> 4) | ((middle >> 6) << 4)), axis=1)
    return scales[:, :, None], minima[:, :, None]


def _scale_k(block: Bytes, quants: Bytes) -> Floats:
    """``quants`` is [blocks, 8, 32]; each group of 32 has its scale and minimum, both scaled per block."""
    scales, minima = _k_scales(block[:, 4:16])
    values = (_half(block, 0)[:, :, None] * scales) * quants - _half(block, 2)[:, :, None] * minima
    return values.reshape(len(block), 256)


def q4_k(block: Bytes) -> Floats:
    quants = _nibbles(block[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    return _scale_k(block, quants)


def q5_k(block: Bytes) -> Floats:
    low = _nibbles(block[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    shift = np.arange(8, dtype=np.uint8)[:, None]
    high = (block[:, None, 16:48] >> shift) & np.uint8(1)  # bit g belongs to group g
    return _scale_k(block, low | (high << np.uint8(4)))


def q6_k(block: Bytes) -> Floats:
    low = _nibbles(block[:, 0:128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    shift = np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]
    high = (block[:, 128:192].reshape(-1, 2, 1, 32) >> shift) & 3
    quants = (low | (high << np.uint8(4))).astype(np.float32) - 32
    scales = np.ascontiguousarray(block[:, 192:208]).view(np.int8)
    scaled = _half(block, 208) * scales
    return (scaled[:, :, None] * quants.reshape(-1, 16, 16)).reshape(len(block), 256)


DEQUANTIZE: dict[str, Callable[[Bytes], Floats]] = {
    "Q4_0": q4_0,
    "Q4_1": q4_1,
    "Q5_0": q5_0,
    "Q5_1": q5_1,
    "Q8_0": q8_0,
    "Q4_K": q4_k,
    "Q5_K": q5_k,
    "Q6_K": q6_k,
}

_FLOATS: dict[str, Any] = {"float64": "<f8", "float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}
READABLE = (*_FLOATS, *DEQUANTIZE)
BLOCK_BYTES = {block.name: block.nbytes for block in TYPES.values()}


def decode(raw: Bytes, dtype: str) -> npt.NDArray[Any]:
    """[rows, bytes] of a readable dtype to [rows, columns]; bfloat16 stays as its 16 bits in uint16."""
    if dtype in _FLOATS:
        return raw.view(_FLOATS[dtype])
    block_bytes = BLOCK_BYTES[dtype]
    return DEQUANTIZE[dtype](raw.reshape(-1, block_bytes)).reshape(len(raw), -1)
