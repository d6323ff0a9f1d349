"""Writes blocks.npz with the PyPI package `gguf` 0.19.0, an implementation that shares nothing with ours.

``python -m venv v && v/bin/pip install gguf==0.19.0 && v/bin/python make_blocks.py``. Per block type: ``TYPE_raw``
[rows, bytes], random bytes with finite float16 scales, and ``TYPE_values`` [rows, elements], what gguf makes of it.
"""

from pathlib import Path

import gguf
import numpy as np

HALVES = {  # where the float16 scales of a block lie
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}  # fmt: skip
ROWS, BLOCKS = 3, 2

random = np.random.default_rng(20240)
arrays = {}
for name, places in HALVES.items():
    kind = gguf.GGMLQuantizationType[name]
    _, width = gguf.GGML_QUANT_SIZES[kind]
    raw = random.integers(0, 256, size=(ROWS * BLOCKS, width), dtype=np.uint8)
    for place in places:
        scales = random.normal(scale=0.05, size=(ROWS * BLOCKS, 1)).astype(np.float16)
        raw[:, place : place + 2] = scales.view(np.uint8)
    raw = raw.reshape(ROWS, BLOCKS * width)
    arrays[f"{name}_raw"] = raw
    arrays[f"{name}_values"] = gguf.quants.dequantize(raw, kind).astype(np.float32)
np.savez_compressed(Path(__file__).with_name("blocks.npz"), **arrays)
