from __future__ import annotations

import resource
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoints.gguf_files import Blob, Typed, q8_0, write_gguf
from trtspec.checkpoints.gguf import read_gguf
from trtspec.checkpoints.values import whole
from trtspec.errors import CheckpointError

METADATA = {
    "general.architecture": "llama",
    "general.alignment": 32,
    "numbers": [Typed(11, -1), Typed(11, 2)],
    "nested": [["a", "b"], ["c"]],
    "empty": [],
    "flag": True,
    "big": Typed(10, 1 << 60),
    "ratio": 0.5,
}


def small(file: Path) -> Path:
    values = np.arange(64, dtype=np.float32).reshape(2, 32)
    return write_gguf(file, METADATA, {"a.weight": values, "b.weight": q8_0(values)})


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_and_tensors_come_back(tmp_path: Path, version: int) -> None:
    values = np.arange(64, dtype=np.float32).reshape(2, 32)
    blob = Blob("Q4_0", (2, 32), bytes(36))
    file = read_gguf(write_gguf(tmp_path / "m.gguf", METADATA, {"a": values, "b": blob}, version=version))
    assert dict(file.metadata) == {
        **METADATA,
        "numbers": [-1, 2],
        "big": 1 << 60,
    }
    assert {name: (t.dtype, t.shape) for name, t in file.tensors.items()} == {
        "a": ("float32", (2, 32)),
        "b": ("Q4_0", (2, 32)),
    }
    np.testing.assert_array_equal(whole(file.tensors["a"]), values)
    np.testing.assert_array_equal(whole(file.tensors["b"]), np.zeros((2, 32)))


def test_cut_anywhere_it_is_an_error_and_not_a_crash(tmp_path: Path) -> None:
    data = small(tmp_path / "m.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in range(len(data)):
        cut.write_bytes(data[:length])
        if length < len(data) - 32:  # the last tensor's own padding may be cut
            with pytest.raises(CheckpointError):
                read_gguf(cut)


def test_any_byte_changed_it_is_read_or_refused(tmp_path: Path) -> None:
    """Never another error, and never memory for counts that cannot be true."""
    data = small(tmp_path / "m.gguf").read_bytes()
    broken = tmp_path / "broken.gguf"
    random = np.random.default_rng(0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    for place in range(len(data) - 128):
        value = int(random.integers(256)) if place % 2 else 0xFF
        broken.write_bytes(data[:place] + bytes([value]) + data[place + 1 :])
        try:
            read_gguf(broken)
        except CheckpointError:
            refused += 1
    assert refused > 100
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


HUGE = (1 << 64) - 1


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (struct.pack("<QQ", HUGE, 0), "announces 18446744073709551615 entries"),
        (struct.pack("<QQ", 0, HUGE), "announces 18446744073709551615 entries"),
        (struct.pack("<QQQ", 0, 1, HUGE) + b"key", "announces 18446744073709551615 entries"),
        (struct.pack("<QQQ", 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 4, HUGE), "announces"),
        (struct.pack("<QQQ", 0, 1, 1) + b"k" + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 40, "unknown type 9"),
        (struct.pack("<QQQ", 0, 1, 1) + b"k" + struct.pack("<I", 77) + bytes(40), "unknown type 77"),
        (struct.pack("<QQQ", 1, 0, 1) + b"t" + struct.pack("<IQIQ", 1, HUGE, 0, 0), "ends at byte"),
        (struct.pack("<QQQ", 1, 0, 1) + b"t" + struct.pack("<IQIQ", 1, 32, 0, HUGE), "ends at byte"),
        (struct.pack("<QQQ", 1, 0, 1) + b"t" + struct.pack("<IQIQ", 1, 33, 2, 0), "no whole number of Q4_0 blocks"),
        (struct.pack("<QQQ", 1, 0, 1) + b"t" + struct.pack("<IQIQ", 1, 32, 99, 0), "unknown GGUF type 99"),
        (struct.pack("<QQQ", 1, 0, 1) + b"t" + struct.pack("<IQIQ", 9, 32, 0, 0), "9 dimensions"),
    ],
)
def test_hostile_counts(tmp_path: Path, head: bytes, words: str) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF" + struct.pack("<I", 3) + head + bytes(64))
    with pytest.raises(CheckpointError, match=words):
        read_gguf(file)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is empty"),
        (b"ABCD" + bytes(40), "does not begin with GGUF"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(40), "GGUF version 1"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(40), "GGUF version 50331648; versions 2 and 3"),
    ],
)
def test_other_files(tmp_path: Path, data: bytes, words: str) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(data)
    with pytest.raises(CheckpointError, match=words):
        read_gguf(file)


def test_a_key_that_occurs_twice(tmp_path: Path) -> None:
    pair = struct.pack("<Q", 1) + b"k" + struct.pack("<II", 4, 7)
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + pair + pair)
    with pytest.raises(CheckpointError, match="metadata key k occurs twice"):
        read_gguf(file)
