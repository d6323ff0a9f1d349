"""The values of a tensor, read from the mapped file in pieces, and their conversion to a compute dtype."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from trtspec.checkpoints.blocks import READABLE, decode
from trtspec.checkpoints.tensor import Tensor
from trtspec.errors import CheckpointError

ComputeDtype = Literal["bfloat16", "float32", "float16"]
Array = npt.NDArray[Any]
PIECE_ELEMENTS = 1 << 17  # what the processor's cache holds while a piece is converted


def pieces(tensor: Tensor, elements: int = PIECE_ELEMENTS) -> Iterator[Array]:
    """[rows, columns] pieces of about ``elements`` values, in order; a vector is one row. bfloat16 comes as uint16."""
    if tensor.dtype not in READABLE:
        raise CheckpointError(
            f"tensor {tensor.name} is {tensor.dtype}, which is not read; these are: {', '.join(READABLE)}",
            where=str(tensor.file),
            hint="use a checkpoint in one of these types",
        )
    columns = tensor.shape[-1]
    rows = tensor.elements // columns
    raw = np.memmap(tensor.file, np.uint8, "r", tensor.offset, (rows, tensor.nbytes // rows))
    step = max(1, elements // columns)
    for start in range(0, rows, step):
        yield decode(raw[start : start + step], tensor.dtype)


def whole(tensor: Tensor) -> Array:
    """The tensor at once, in its own shape."""
    return np.concatenate(list(pieces(tensor))).reshape(tensor.shape)


def widen(values: Array) -> npt.NDArray[np.float32]:
    """To float32; uint16 holds the bits of bfloat16."""
    if values.dtype == np.uint16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32, copy=False)


def cast(values: Array, dtype: ComputeDtype, name: str) -> Array:
    """To ``dtype``, rounding to nearest even. A finite value beyond float16's range is an error naming the tensor."""
    if dtype == "bfloat16":
        return values if values.dtype == np.uint16 else _bfloat16(widen(values))
    wide = widen(values)
    if dtype == "float32":
        return wide
    with np.errstate(over="ignore"):
        half = wide.astype(np.float16)
    if bool((np.isinf(half) & np.isfinite(wide)).any()):
        raise CheckpointError(
            f"tensor {name} holds a value beyond float16's range", hint="choose dtype bfloat16 or float32"
        )
    return half


def _bfloat16(wide: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    bits = np.ascontiguousarray(wide).view(np.uint32)
    rounded = bits >> 16
    rounded &= 1
    rounded += 0x7FFF
    rounded += bits  # wraps for some NaN, which are mended below
    rounded >>= 16
    halves = rounded.astype(np.uint16)
    nan = np.isnan(wide)
    if bool(nan.any()):
        halves[nan] = (bits[nan] >> 16).astype(np.uint16) | 0x40
    return halves
