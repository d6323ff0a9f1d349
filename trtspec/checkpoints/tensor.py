"""One tensor of a checkpoint file: its type, its shape and where its bytes lie. Headers are read without numpy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Tensor:
    """``dtype`` is float32, float16, bfloat16, float64, float8_e4m3fn ..., or a GGUF block type such as Q4_K.

    ``shape`` is in row-major order, the output rows of a matrix first. ``offset`` counts bytes from the file's start.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    offset: int
    nbytes: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)
