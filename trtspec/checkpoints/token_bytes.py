"""The bytes a token of a vocabulary stands for, by the vocabulary's decoder (the ``decoder`` of tokenizer.json)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_alphabet() -> dict[str, int]:
    """GPT-2's one visible character per byte: printable ones stand for themselves, the others from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


class BytesOfTokens:
    def __init__(self, decoder: Mapping[str, Any] | None) -> None:
        kinds = _kinds(decoder)
        self._byte_level = byte_alphabet() if "ByteLevel" in kinds else None
        self._spaced = bool({"Metaspace", "ByteFallback"} & kinds)

    def of(self, text: str) -> bytes | None:
        """``▁the`` is " the" here: a decoder may still drop the space at the start of a text."""
        if self._byte_level is not None:
            alphabet = self._byte_level
            return bytes(alphabet[c] for c in text) if all(c in alphabet for c in text) else text.encode()
        if not self._spaced:
            return None
        byte = _BYTE.fullmatch(text)
        return bytes([int(byte[1], 16)]) if byte else text.replace("▁", " ").encode()


def _kinds(decoder: Mapping[str, Any] | None) -> set[str]:
    if decoder is None:
        return set()
    steps = decoder.get("decoders", [decoder])
    return {str(step.get("type")) for step in steps}
