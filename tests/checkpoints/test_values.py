from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from trtspec.checkpoints.tensor import Tensor
from trtspec.checkpoints.values import cast, pieces, whole, widen
from trtspec.errors import CheckpointError


def some_values() -> np.ndarray:
    random = np.random.default_rng(0)
    bits = random.integers(0, 1 << 32, size=200_000, dtype=np.uint64).astype(np.uint32)
    ties = np.array([0x3F808000, 0x3F818000, 0xBF808000, 0x7F7FFFFF, 0x00008000, 0x00018000, 0, 1 << 31], np.uint32)
    return np.concatenate((bits, ties, np.array([np.inf, -np.inf, np.nan], np.float32).view(np.uint32))).view(
        np.float32
    )


def test_bfloat16_rounds_like_torch() -> None:
    values = some_values()
    ours = widen(cast(values, "bfloat16", "x"))
    theirs = torch.from_numpy(values).to(torch.bfloat16).to(torch.float32).numpy()
    np.testing.assert_array_equal(ours, theirs)


def test_bfloat16_stays_as_it_is() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    assert cast(bits, "bfloat16", "x") is bits


def test_float16_rounds_like_torch_and_refuses_what_does_not_fit() -> None:
    values = np.random.default_rng(0).normal(size=10_000).astype(np.float32)
    np.testing.assert_array_equal(cast(values, "float16", "x"), torch.from_numpy(values).half().numpy())
    with pytest.raises(CheckpointError, match=r"tensor big holds a value beyond float16's range"):
        cast(np.array([70000.0], np.float32), "float16", "big")
    assert np.isinf(cast(np.array([np.inf], np.float32), "float16", "x")[0])


@pytest.mark.parametrize("elements", [1, 7, 8, 64, 1000])
def test_pieces_join_to_the_whole(tmp_path: Path, elements: int) -> None:
    values = np.arange(40, dtype=np.float32).reshape(5, 8)
    file = tmp_path / "t"
    file.write_bytes(b"abc" + values.tobytes())  # not aligned
    tensor = Tensor("t", "float32", (5, 8), file, 3, values.nbytes)
    np.testing.assert_array_equal(np.concatenate(list(pieces(tensor, elements))), values)
    np.testing.assert_array_equal(whole(tensor), values)


def test_a_type_that_is_not_read_is_refused_with_the_list(tmp_path: Path) -> None:
    tensor = Tensor("blk.0.ffn_up.weight", "IQ2_XS", (256, 256), tmp_path / "m.gguf", 0, 100)
    with pytest.raises(CheckpointError, match=r"blk\.0\.ffn_up\.weight is IQ2_XS, .*Q4_0, .*Q6_K"):
        next(pieces(tensor))
