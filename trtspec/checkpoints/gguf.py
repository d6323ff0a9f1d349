"""GGUF files: metadata and tensor table. Every count is held against the bytes that are left before it is believed.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. No numpy here.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtspec.checkpoints.tensor import Tensor
from trtspec.errors import CheckpointError

MAX_DIMENSIONS = 4
MAX_DEPTH = 4  # arrays of arrays
MAX_LENGTH = 1 << 24  # elements of one array; vocabularies are the longest and stay under a million


@dataclass(frozen=True)
class BlockType:
    """``elements`` weights are stored together in ``nbytes`` bytes."""

    name: str
    elements: int
    nbytes: int


TYPES: dict[int, BlockType] = {
    0: BlockType("float32", 1, 4),
    1: BlockType("float16", 1, 2),
    2: BlockType("Q4_0", 32, 18),
    3: BlockType("Q4_1", 32, 20),
    6: BlockType("Q5_0", 32, 22),
    7: BlockType("Q5_1", 32, 24),
    8: BlockType("Q8_0", 32, 34),
    9: BlockType("Q8_1", 32, 36),
    10: BlockType("Q2_K", 256, 84),
    11: BlockType("Q3_K", 256, 110),
    12: BlockType("Q4_K", 256, 144),
    13: BlockType("Q5_K", 256, 176),
    14: BlockType("Q6_K", 256, 210),
    15: BlockType("Q8_K", 256, 292),
    16: BlockType("IQ2_XXS", 256, 66),
    17: BlockType("IQ2_XS", 256, 74),
    18: BlockType("IQ3_XXS", 256, 98),
    19: BlockType("IQ1_S", 256, 50),
    20: BlockType("IQ4_NL", 32, 18),
    21: BlockType("IQ3_S", 256, 110),
    22: BlockType("IQ2_S", 256, 82),
    23: BlockType("IQ4_XS", 256, 136),
    24: BlockType("int8", 1, 1),
    25: BlockType("int16", 1, 2),
    26: BlockType("int32", 1, 4),
    27: BlockType("int64", 1, 8),
    28: BlockType("float64", 1, 8),
    29: BlockType("IQ1_M", 256, 56),
    30: BlockType("bfloat16", 1, 2),
    34: BlockType("TQ1_0", 256, 54),
    35: BlockType("TQ2_0", 256, 66),
    39: BlockType("MXFP4", 32, 17),
}

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True)
class GgufFile:
    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def read_gguf(path: Path) -> GgufFile:
    try:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(path, data).read()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}", where=str(path)) from error
    except ValueError as error:  # an empty file cannot be mapped
        raise _broken(path, "it is empty") from error


class _Reader:
    """A cursor over the mapped file."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.size, self.at = path, data, len(data), 0

    def read(self) -> GgufFile:
        if self.data[:4] != b"GGUF":
            raise _broken(self.path, "it does not begin with GGUF")
        self.at = 4
        version = self.scalar("<I")
        if version not in (2, 3):
            raise CheckpointError(
                f"{self.path.name} has GGUF version {version}; versions 2 and 3 (little-endian) are read",
                where=str(self.path),
                hint="convert the model again with a current llama.cpp",
            )
        tensor_count, pair_count = self.count(24), self.count(13)
        metadata = self.pairs(pair_count)
        infos = [self.tensor_info() for _ in range(tensor_count)]
        return GgufFile(self.path, metadata, self.place(infos, metadata.get("general.alignment", 32)))

    def take(self, length: int) -> int:
        """Moves over ``length`` bytes and returns where they begin."""
        begin = self.at
        if length > self.size - begin:
            raise _broken(self.path, f"it ends at byte {self.size}, inside its header")
        self.at = begin + length
        return begin

    def scalar(self, layout: str) -> Any:
        return struct.unpack_from(layout, self.data, self.take(struct.calcsize(layout)))[0]

    def count(self, least_bytes: int) -> int:
        """A number of things of at least ``least_bytes`` bytes each, all of which must still fit."""
        count: int = self.scalar("<Q")
        if count * least_bytes > self.size - self.at:
            raise _broken(self.path, f"it announces {count} entries that do not fit in its {self.size} bytes")
        return count

    def string(self) -> str:
        length = self.count(1)
        begin = self.take(length)
        return self.data[begin : begin + length].decode("utf-8", "replace")

    def pairs(self, count: int) -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        for _ in range(count):
            key = self.string()
            if key in metadata:
                raise _broken(self.path, f"metadata key {key} occurs twice")
            metadata[key] = self.value(self.scalar("<I"), 0)
        return metadata

    def value(self, kind: int, depth: int) -> Any:
        if kind in _SCALARS:
            return self.scalar(_SCALARS[kind])
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY and depth < MAX_DEPTH:
            return self.array(depth)
        raise _broken(self.path, f"a metadata value has the unknown type {kind}")

    def array(self, depth: int) -> list[Any]:
        kind = self.scalar("<I")
        if kind == _STRING:
            return self.strings()
        if kind not in _SCALARS:
            return [self.value(kind, depth + 1) for _ in range(self.length(8))]
        layout = _SCALARS[kind]
        width = struct.calcsize(layout)
        count = self.length(width)
        return list(struct.unpack_from(f"<{count}{layout[1]}", self.data, self.take(count * width)))

    def strings(self) -> list[str]:
        """As ``string`` in a loop, without a call per piece: vocabularies have hundreds of thousands."""
        count = self.length(8)
        data, at, size, unpack = self.data, self.at, self.size, struct.Struct("<Q").unpack_from
        texts = []
        for _ in range(count):
            begin = at + 8
            at = begin + unpack(data, at)[0] if begin <= size else size + 1
            if at > size:
                raise _broken(self.path, f"it ends at byte {size}, inside its header")
            texts.append(data[begin:at].decode("utf-8", "replace"))
        self.at = at
        return texts

    def length(self, least_bytes: int) -> int:
        count = self.count(least_bytes)
        if count > MAX_LENGTH:
            raise _broken(self.path, f"an array of {count} elements is longer than any vocabulary")
        return count

    def tensor_info(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self.string()
        dimensions = self.scalar("<I")
        if not 1 <= dimensions <= MAX_DIMENSIONS:
            raise _broken(self.path, f"tensor {name} has {dimensions} dimensions")
        shape = struct.unpack_from(f"<{dimensions}Q", self.data, self.take(8 * dimensions))
        return name, shape[::-1], self.scalar("<I"), self.scalar("<Q")

    def place(self, infos: list[tuple[str, tuple[int, ...], int, int]], alignment: Any) -> dict[str, Tensor]:
        if not isinstance(alignment, int) or alignment <= 0 or alignment > 1 << 20 or alignment & (alignment - 1):
            raise _broken(self.path, f"general.alignment is {alignment}")
        start = -(-self.at // alignment) * alignment
        tensors: dict[str, Tensor] = {}
        for name, shape, kind, offset in infos:
            if name in tensors:
                raise _broken(self.path, f"tensor {name} occurs twice")
            tensors[name] = self.tensor(name, shape, kind, start + offset)
        return tensors

    def tensor(self, name: str, shape: tuple[int, ...], kind: int, offset: int) -> Tensor:
        block = TYPES.get(kind)
        if block is None:
            raise CheckpointError(
                f"tensor {name} of {self.path.name} has the unknown GGUF type {kind}", where=str(self.path)
            )
        if 0 in shape or shape[-1] % block.elements:
            raise _broken(self.path, f"tensor {name} of shape {list(shape)} is no whole number of {block.name} blocks")
        nbytes = math.prod(shape) // block.elements * block.nbytes
        if offset + nbytes > self.size:
            raise _broken(self.path, f"tensor {name} ends at byte {offset + nbytes}, the file at {self.size}")
        return Tensor(name, block.name, shape, self.path, offset, nbytes)


def _broken(path: Path, why: str) -> CheckpointError:
    return CheckpointError(f"{path.name} is damaged: {why}", where=str(path), hint="fetch the file again")
