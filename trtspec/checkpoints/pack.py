"""A checkpoint to a packed one (runtime/config.py): one safetensors file in compute dtype, written piece by piece.

Memory stays near one projection matrix. The weights are written before config.json, so that a folder that was left
half-written is not taken for a checkpoint; staging and renaming are the caller's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trtspec.checkpoints.facts import CheckpointFacts, naming_of, open_checkpoint
from trtspec.checkpoints.gguf_config import INTERLEAVED_ROTARY
from trtspec.checkpoints.layout import Naming, PackedTensor, Part, packed_tensors, source_name
from trtspec.checkpoints.tensor import Tensor
from trtspec.checkpoints.tokenizer import load_tokenizer
from trtspec.checkpoints.values import Array, ComputeDtype, cast, pieces, whole
from trtspec.errors import CheckpointError
from trtspec.runtime.config import PACKED_CONFIG, PACKED_WEIGHTS

ALIGNMENT = 64
Progress = Callable[[int, int], None]  # bytes written, bytes in all
_FORMAT_NAMES = {"float32": ("F32", 4), "float16": ("F16", 2), "bfloat16": ("BF16", 2)}


def pack(
    path: Path,
    out: Path,
    dtype: ComputeDtype,
    on_progress: Progress | None = None,
    tokenizer: Path | None = None,
) -> None:
    """Weights, configuration and tokenizer into ``out``. ``tokenizer``: where it lies when not with the weights."""
    out.mkdir(parents=True, exist_ok=True)
    load_tokenizer(tokenizer or path).save(out)
    pack_weights(path, out, dtype, on_progress)


def pack_weights(path: Path, out: Path, dtype: ComputeDtype, on_progress: Progress | None = None) -> None:
    facts, tensors = open_checkpoint(path)
    _refuse(facts)
    _refuse_twin(facts, tensors)
    source = _Source(tensors, naming_of(facts), interleaved=_is_interleaved(facts))
    slots = _slots(packed_tensors(facts.config), dtype)
    out.mkdir(parents=True, exist_ok=True)
    _write(out / PACKED_WEIGHTS, slots, source, on_progress or _no_progress)
    (out / PACKED_CONFIG).write_text(facts.config.to_json() + "\n", encoding="utf-8")


@dataclass(frozen=True)
class _Slot:
    """A tensor's place in the file; ``tensor`` is None for the filler that aligns the next one."""

    name: str
    dtype: ComputeDtype
    tensor: PackedTensor | None
    begin: int
    nbytes: int

    def entry(self) -> dict[str, Any]:
        shape = [self.nbytes // _width(self.dtype)] if self.tensor is None else list(self.tensor.shape)
        return {"dtype": _name(self.dtype), "shape": shape, "data_offsets": [self.begin, self.begin + self.nbytes]}


@dataclass(frozen=True)
class _Source:
    """The checkpoint's tensors by role. ``interleaved``: q and k rows lie as rotary pairs."""

    tensors: Mapping[str, Tensor]
    naming: Naming
    interleaved: bool

    def rows(self, part: Part) -> Iterator[Array]:
        tensor = self.tensors[source_name(part.role, self.naming)]
        if part.rotary_heads is not None and self.interleaved:
            return iter([_halves(whole(tensor), part.rotary_heads)])
        return pieces(tensor)


def _halves(rows: Array, heads: int) -> Array:
    """[heads D, ...] from pairs x0 y0 x1 y1 ... of each head to halves x0 x1 ... y0 y1 ..."""
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def _slots(tensors: list[PackedTensor], dtype: ComputeDtype) -> list[_Slot]:
    slots: list[_Slot] = []
    end = 0
    for tensor in tensors:
        if end % ALIGNMENT:
            slots.append(_Slot(f"pad.{len(slots)}", dtype, None, end, -end % ALIGNMENT))
            end += slots[-1].nbytes
        stored: ComputeDtype = "float32" if tensor.is_norm else dtype
        nbytes = _elements(tensor) * _width(stored)
        slots.append(_Slot(tensor.name, stored, tensor, end, nbytes))
        end += nbytes
    return slots


def _write(file: Path, slots: list[_Slot], source: _Source, on_progress: Progress) -> None:
    total = slots[-1].begin + slots[-1].nbytes
    with file.open("wb") as stream:
        stream.write(_header(slots))
        data_start = stream.tell()
        for slot in slots:
            if slot.tensor is None:
                stream.write(bytes(slot.nbytes))
                continue
            for part in slot.tensor.parts:
                for piece in source.rows(part):
                    stream.write(cast(piece, slot.dtype, part.role).tobytes())
                    on_progress(stream.tell() - data_start, total)


def _header(slots: list[_Slot]) -> bytes:
    """Padded with spaces so that the data begin at a multiple of ALIGNMENT."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    text = json.dumps(entries | {slot.name: slot.entry() for slot in slots}, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _elements(tensor: PackedTensor) -> int:
    rows, *columns = tensor.shape
    return rows * (columns[0] if columns else 1)


def _name(dtype: ComputeDtype) -> str:
    return _FORMAT_NAMES[dtype][0]


def _width(dtype: ComputeDtype) -> int:
    return _FORMAT_NAMES[dtype][1]


def _is_interleaved(facts: CheckpointFacts) -> bool:
    return facts.format == "gguf" and facts.config.family in INTERLEAVED_ROTARY


def _refuse(facts: CheckpointFacts) -> None:
    if facts.format == "packed":
        raise CheckpointError(f"{facts.path} is packed already", where=str(facts.path), hint="name the original model")
    if facts.format == "safetensors" and facts.quantization is not None:
        raise CheckpointError(
            f"{facts.path} holds weights quantized to {facts.quantization}, which cannot be packed",
            where=str(facts.path),
            hint="use the unquantized checkpoint, or a GGUF file",
        )


def _refuse_twin(facts: CheckpointFacts, tensors: Mapping[str, Tensor]) -> None:
    """A tied checkpoint may repeat its embedding as output matrix, but not hold another one."""
    embedding, output = (tensors.get(source_name(f"{role}.weight", naming_of(facts))) for role in ("embed", "lm_head"))
    if not facts.config.tied or embedding is None or output is None:
        return
    alike = (embedding.shape, embedding.dtype) == (output.shape, output.dtype)
    if not alike or not all(map(np.array_equal, pieces(embedding), pieces(output))):
        raise CheckpointError(
            f"config.json ties the output matrix to the embedding, but {output.name} differs from {embedding.name}",
            where=str(facts.path),
            hint="set tie_word_embeddings to false in config.json, if the output matrix is meant to be used",
        )


def _no_progress(done: int, total: int) -> None:
    """Nobody watches."""
