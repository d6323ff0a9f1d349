from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trtspec.checkpoints import blocks
from trtspec.checkpoints.gguf import TYPES

GOLDEN = np.load(Path(__file__).with_name("data") / "blocks.npz")  # see data/make_blocks.py
ELEMENTS = {block.name: block.elements for block in TYPES.values()}


@pytest.mark.parametrize("kind", blocks.DEQUANTIZE)
def test_equal_to_an_independent_implementation(kind: str) -> None:
    values = blocks.decode(GOLDEN[f"{kind}_raw"], kind)
    assert values.dtype == np.float32
    np.testing.assert_array_max_ulp(values, GOLDEN[f"{kind}_values"], maxulp=2)


@pytest.mark.parametrize("kind", blocks.DEQUANTIZE)
def test_golden_blocks_use_the_whole_range(kind: str) -> None:
    """Otherwise the test above could pass with a bit left out."""
    raw = GOLDEN[f"{kind}_raw"]
    assert raw.shape[1] % blocks.BLOCK_BYTES[kind] == 0
    expected = GOLDEN[f"{kind}_values"]
    for byte in range(raw.shape[1]):
        changed = raw.copy()
        changed[:, byte] ^= 0xA5
        with np.errstate(all="ignore"):
            assert not np.array_equal(blocks.decode(changed, kind), expected, equal_nan=True), byte


def half(value: float) -> bytes:
    return np.float16(value).tobytes()


def test_blocks_written_from_known_numbers() -> None:
    quants = np.arange(32) % 16
    nibbles = bytes(int(quants[i]) | int(quants[i + 16]) << 4 for i in range(16))
    raw = np.frombuffer(half(0.5) + nibbles, np.uint8)[None]
    np.testing.assert_array_equal(blocks.decode(raw, "Q4_0")[0], 0.5 * (quants - 8))
    raw = np.frombuffer(half(0.5) + half(-3) + nibbles, np.uint8)[None]
    np.testing.assert_array_equal(blocks.decode(raw, "Q4_1")[0], 0.5 * quants - 3)
    raw = np.frombuffer(half(0.25) + np.arange(-16, 16, dtype=np.int8).tobytes(), np.uint8)[None]
    np.testing.assert_array_equal(blocks.decode(raw, "Q8_0")[0], 0.25 * np.arange(-16, 16))


def test_k_scales_of_six_bits_come_back() -> None:
    random = np.random.default_rng(1)
    scales, minima = random.integers(0, 64, size=(2, 8))
    packed = bytearray(12)
    for group in range(4):  # as ggml-quants.c packs them
        packed[group] = scales[group] | (scales[group + 4] >> 4) << 6
        packed[group + 4] = minima[group] | (minima[group + 4] >> 4) << 6
        packed[group + 8] = (scales[group + 4] & 15) | (minima[group + 4] & 15) << 4
    raw = np.frombuffer(half(1) + half(1) + bytes(packed) + bytes([0x21] * 128), np.uint8)[None]
    values = blocks.decode(raw, "Q4_K")[0].reshape(8, 32)
    expected = [(1 if group % 2 == 0 else 2) * scales[group] - minima[group] for group in range(8)]
    np.testing.assert_array_equal(values, np.repeat(np.array(expected, np.float32)[:, None], 32, axis=1))


@pytest.mark.parametrize("kind", ["float32", "float16", "float64"])
def test_floats_are_read_in_place(kind: str) -> None:
    values = np.array([[1.5, -2.0], [0.0, 3.25]], dtype=kind)
    raw = values.view(np.uint8).reshape(2, -1)
    decoded = blocks.decode(raw, kind)
    assert np.shares_memory(decoded, values)
    np.testing.assert_array_equal(decoded, values)
