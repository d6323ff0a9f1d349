"""The vocabulary in GGUF metadata: tokens, their types and the special ids. Keys: the GGUF specification."""

from __future__ import annotations

from typing import Any

from trtspec.checkpoints.gguf import GgufFile
from trtspec.errors import CheckpointError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
# Control tokens that end a turn whatever the metadata names as the end; the list llama.cpp keeps (llama-vocab.cpp).
END_TEXTS = ("<|endoftext|>", "<|im_end|>", "<|end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end_of_text|>")


def tokens(file: GgufFile) -> list[str]:
    values = file.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(values, list) or not values or not isinstance(values[0], str):  # an array is of one type
        raise CheckpointError(
            f"{file.path.name} has no vocabulary (tokenizer.ggml.tokens)",
            where=str(file.path),
            hint="use a GGUF file that carries its tokenizer",
        )
    return values


def token_types(file: GgufFile) -> list[int]:
    return numbers(file, "tokenizer.ggml.token_type", [NORMAL] * len(tokens(file)))


def numbers(file: GgufFile, key: str, default: list[Any]) -> list[Any]:
    """One number per token."""
    values = file.metadata.get(key, default)
    if not isinstance(values, list) or len(values) != len(tokens(file)):
        raise CheckpointError(f"{file.path.name}: {key} has not one entry per token", where=str(file.path))
    if not isinstance(values[0], int | float):
        raise CheckpointError(f"{file.path.name}: {key} holds no numbers", where=str(file.path))
    return values


def token_id(file: GgufFile, name: str) -> int | None:
    """``name`` is bos, eos, eot, eom, unknown or padding. An id outside of the vocabulary counts as absent."""
    value = file.metadata.get(f"tokenizer.ggml.{name}_token_id")
    return value if type(value) is int and 0 <= value < len(tokens(file)) else None


def end_ids(file: GgufFile) -> tuple[int, ...]:
    """The end the metadata names first, then its other ends and the control tokens that end a turn."""
    named = [token_id(file, name) for name in ("eos", "eot", "eom")]
    types = token_types(file)
    texts = [index for index, text in enumerate(tokens(file)) if text in END_TEXTS and types[index] == CONTROL]
    return tuple(dict.fromkeys(index for index in (*named, *texts) if index is not None))
