"""What a checkpoint's headers say. Reads no weights (but GGUF's rotary factors), imports no torch."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trtspec.checkpoints import gguf_config, gguf_vocabulary, hf_config, safetensors
from trtspec.checkpoints.gguf import GgufFile, read_gguf
from trtspec.checkpoints.json_file import read_object, read_object_if_there
from trtspec.checkpoints.layout import MOST_LAYERS, Naming, Shape, packed_tensors, required_tensors, source_name
from trtspec.checkpoints.tensor import Tensor
from trtspec.errors import CheckpointError
from trtspec.runtime.config import PACKED_CONFIG, ModelConfig

Format = Literal["safetensors", "gguf", "packed"]
_FLOATS = ("bfloat16", "float16", "float32", "float64")
_QUANTIZED_IN_PLACE = ("fp8", "modelopt", "compressed-tensors")  # quantizers that keep names and shapes of the weights
_IGNORED_SUFFIXES = (".rotary_emb.inv_freq",)


@dataclass(frozen=True)
class CheckpointFacts:
    """``dtype`` is what ``dtype: auto`` computes in: the checkpoint's own float type, bfloat16 where it is quantized.

    ``quantization``: None, fp8, or what the checkpoint calls it (GGUF: its block types). ``weights_bytes`` as stored.
    ``parameters`` counts the weights a forward pass uses, a tied output matrix once.
    """

    path: Path
    format: Format
    config: ModelConfig
    dtype: str
    quantization: str | None
    weights_bytes: int
    parameters: int
    end_ids: tuple[int, ...]
    bos_id: int | None
    tensors: Mapping[str, tuple[str, Shape]]


def read_facts(path: Path) -> CheckpointFacts:
    """Of a model folder, a .gguf file or a packed checkpoint."""
    return open_checkpoint(path)[0]


def open_checkpoint(path: Path) -> tuple[CheckpointFacts, Mapping[str, Tensor]]:
    """The facts, and where each tensor lies."""
    if path.suffix == ".gguf" and path.is_file():
        return _gguf(read_gguf(path))
    if not path.is_dir():
        raise CheckpointError(
            f"no checkpoint at {path}", where=str(path), hint="name a model folder or a .gguf file that exists"
        )
    config = read_object(path / "config.json")
    if is_packed(config):
        return _packed(path, config)
    return _safetensors(path, config)


def is_packed(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is ours (see runtime/config.py) and not Hugging Face's."""
    return "family" in config and "num_layers" in config and "model_type" not in config


def naming_of(facts: CheckpointFacts) -> Naming:
    return "gguf" if facts.format == "gguf" else "huggingface"


def _safetensors(folder: Path, raw: Mapping[str, Any]) -> tuple[CheckpointFacts, Mapping[str, Tensor]]:
    config = hf_config.model_config(raw, folder / "config.json")
    quantization = _declared_quantization(raw, folder)
    tensors = safetensors.read_folder(folder)
    _hold_against(config, tensors, "huggingface", folder, strict=quantization is None)
    if quantization is None and any(tensor.dtype.startswith("float8") for tensor in tensors.values()):
        quantization = "fp8"
    generation = read_object_if_there(folder / "generation_config.json")
    return _facts(
        folder,
        "safetensors",
        config,
        tensors,
        quantization=quantization,
        end_ids=end_ids(generation, raw),
        bos_id=bos_id(generation, raw),
    ), tensors


def _packed(folder: Path, raw: Mapping[str, Any]) -> tuple[CheckpointFacts, Mapping[str, Tensor]]:
    try:
        config = ModelConfig.from_dict(raw)
    except (TypeError, KeyError) as error:
        raise CheckpointError(
            f"{PACKED_CONFIG} in {folder} is not of this version", where=str(folder), hint="build it again"
        ) from error
    if not 0 < config.num_layers <= MOST_LAYERS:
        raise CheckpointError(
            f"{PACKED_CONFIG}: num_layers is {config.num_layers}, and {MOST_LAYERS} is the most that is run",
            where=str(folder / PACKED_CONFIG),
            hint="build it again",
        )
    tensors = {name: t for name, t in safetensors.read_folder(folder).items() if not name.startswith("pad.")}
    required = {tensor.name: tensor.shape for tensor in packed_tensors(config)}
    _compare(required, tensors, folder)
    generation = read_object_if_there(folder / "generation_config.json")
    return _facts(folder, "packed", config, tensors, None, end_ids(generation, {}), bos_id(generation, {})), tensors


def _gguf(file: GgufFile) -> tuple[CheckpointFacts, Mapping[str, Tensor]]:
    config = gguf_config.model_config(file, _rope_factors(file))
    _hold_against(config, file.tensors, "gguf", file.path, strict=True)
    kinds = Counter(t.dtype for t in file.tensors.values() if t.dtype not in _FLOATS)
    return _facts(
        file.path,
        "gguf",
        config,
        file.tensors,
        quantization="+".join(kind for kind, _ in kinds.most_common()) or None,
        end_ids=gguf_vocabulary.end_ids(file),
        bos_id=gguf_vocabulary.token_id(file, "bos"),
    ), file.tensors


def _facts(
    path: Path,
    kind: Format,
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    quantization: str | None,
    end_ids: tuple[int, ...],
    bos_id: int | None,
) -> CheckpointFacts:
    return CheckpointFacts(
        path=path,
        format=kind,
        config=config,
        dtype=_compute_dtype(tensors) if quantization is None else "bfloat16",
        quantization=quantization,
        weights_bytes=sum(tensor.nbytes for tensor in tensors.values()),
        parameters=sum(math.prod(tensor.shape) for tensor in packed_tensors(config)),
        end_ids=end_ids,
        bos_id=bos_id,
        tensors={name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()},
    )


def _compute_dtype(tensors: Mapping[str, Tensor]) -> str:
    """The float type that most bytes are stored in; float64 counts as float32."""
    nbytes: Counter[str] = Counter()
    for tensor in tensors.values():
        if tensor.dtype in _FLOATS:
            nbytes[tensor.dtype.replace("float64", "float32")] += tensor.nbytes
    return nbytes.most_common(1)[0][0] if nbytes else "bfloat16"


def _rope_factors(file: GgufFile) -> list[float] | None:
    tensor = file.tensors.get(gguf_config.ROPE_FACTORS)
    if tensor is None:
        return None
    if tensor.dtype != "float32" or tensor.elements > 4096:
        raise CheckpointError(f"{tensor.name} is no short list of float32", where=str(file.path))
    with file.path.open("rb") as stream:
        stream.seek(tensor.offset)
        return list(struct.unpack(f"<{tensor.elements}f", stream.read(tensor.nbytes)))


def _declared_quantization(raw: Mapping[str, Any], folder: Path) -> str | None:
    declared = raw.get("quantization_config")
    if not declared:
        return None
    method = declared.get("quant_method") if isinstance(declared, dict) else None
    if method not in _QUANTIZED_IN_PLACE:
        raise CheckpointError(
            f"config.json: weights quantized by {method!r} are not read",
            where=str(folder / "config.json"),
            hint="use the unquantized checkpoint, a GGUF file, or one quantized to FP8",
        )
    return str(method)


def end_ids(*configs: Mapping[str, Any]) -> tuple[int, ...]:
    """``eos_token_id`` (a number or a list) of the first config that has it."""
    for config in configs:
        value = config.get("eos_token_id")
        ids = value if isinstance(value, list) else [value]
        if value is not None and all(type(number) is int for number in ids):
            return tuple(dict.fromkeys(ids))
    return ()


def bos_id(*configs: Mapping[str, Any]) -> int | None:
    ids = [config["bos_token_id"] for config in configs if type(config.get("bos_token_id")) is int]
    return ids[0] if ids else None


def _hold_against(
    config: ModelConfig, tensors: Mapping[str, Tensor], naming: Naming, where: Path, *, strict: bool
) -> None:
    """The checkpoint has every tensor of the architecture; ``strict``: and no other one inside a layer."""
    required = required_tensors(config, naming)
    _compare(required, tensors, where)
    prefix = source_name("layers", naming)
    layers = tuple(f"{prefix}.{layer}." for layer in range(config.num_layers))
    extra = [
        name
        for name in tensors
        if name not in required and name.startswith(layers) and not name.endswith(_IGNORED_SUFFIXES)
    ]
    if strict and extra:
        raise CheckpointError(
            f"{len(extra)} tensors have no place in a {config.family} decoder: {', '.join(sorted(extra)[:3])}",
            where=str(where),
            hint="this variant of the architecture is not run",
        )


def _compare(required: Mapping[str, Shape], tensors: Mapping[str, Tensor], where: Path) -> None:
    missing = [name for name in required if name not in tensors]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CheckpointError(
            f"tensor {missing[0]} is missing{more}",
            where=str(where),
            hint="fetch the checkpoint again; an output matrix may be absent only where tie_word_embeddings is true",
        )
    for name, shape in required.items():
        if tensors[name].shape != shape:
            raise CheckpointError(
                f"tensor {name} has the shape {list(tensors[name].shape)}, the configuration asks for {list(shape)}",
                where=str(where),
                hint="config and weights do not belong together",
            )
