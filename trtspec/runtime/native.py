"""The compiled implementation of Ops: CPU, bfloat16 and float32. The source is kernels/kernels.cpp."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from trtspec.errors import CheckpointError
from trtspec.runtime.batch import Batch
from trtspec.runtime.config import ModelConfig
from trtspec.runtime.kernels import ABI

Tensor = torch.Tensor
SUFFIX = {torch.bfloat16: "bf16", torch.float32: "f32"}

_int = ctypes.c_int64
_ptr = ctypes.c_void_p
_float = ctypes.c_float


class NativeOps:
    """Every row's result is independent of the other rows of the pass (the kernels' one rule)."""

    def __init__(self, config: ModelConfig, library: Path, dtype: torch.dtype) -> None:
        self.config = config
        self.residual = self._dtype = dtype
        try:
            lib = ctypes.CDLL(str(library))
            abi = int(lib.kernels_abi())
        except (OSError, AttributeError) as error:
            raise CheckpointError(
                f"the native kernels at {library} do not load: {error}",
                where="reference.compile",
                hint="run `trtspec build` again, or set reference.compile: off",
            ) from error
        if abi != ABI:
            raise CheckpointError(
                f"the native kernels at {library} are of another version ({abi}, wanted {ABI})",
                where="reference.compile",
                hint="run `trtspec build` again",
            )
        suffix = SUFFIX[dtype]
        self._linear = _bind(lib, f"linear_{suffix}", [_ptr, _ptr, _ptr, _ptr, _int, _int, _int])
        self._logits = _bind(lib, f"logits_{suffix}", [_ptr, _ptr, _ptr, _int, _int, _int])
        self._add_norm = _bind(lib, f"add_norm_{suffix}", [_ptr, _ptr, _ptr, _float, _ptr, _int, _int])
        self._silu_mul = _bind(lib, f"silu_mul_{suffix}", [_ptr, _ptr, _int, _int])
        self._attend = _bind(lib, f"attend_{suffix}", [_int] * 6 + [_float] + [_ptr] * 10)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows, size = x.shape
        out = torch.empty(rows, weight.shape[0], dtype=self._dtype)
        bias_at = None if bias is None else bias.data_ptr()
        self._linear(x.data_ptr(), weight.data_ptr(), bias_at, out.data_ptr(), rows, weight.shape[0], size)
        return out

    def logits(self, x: Tensor, weight: Tensor) -> Tensor:
        rows, size = x.shape
        out = torch.empty(rows, weight.shape[0], dtype=torch.float32)
        self._logits(x.data_ptr(), weight.data_ptr(), out.data_ptr(), rows, weight.shape[0], size)
        return out

    def add_norm(self, h: Tensor, delta: Tensor | None, weight: Tensor) -> Tensor:
        out = torch.empty_like(h)
        delta_at = None if delta is None else delta.data_ptr()
        self._add_norm(
            h.data_ptr(), delta_at, weight.data_ptr(), self.config.norm_eps, out.data_ptr(), h.shape[0], h.shape[1]
        )
        return out

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        rows, width = gate_up.shape
        out = torch.empty(rows, width // 2, dtype=self._dtype)
        self._silu_mul(gate_up.data_ptr(), out.data_ptr(), rows, width // 2)
        return out

    def rope_tables(self, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        return cos, sin

    def attend(self, qkv: Tensor, batch: Batch, kv: Tensor, norms: tuple[Tensor, Tensor] | None) -> Tensor:
        c = self.config
        tokens = qkv.shape[0]
        out = torch.empty(tokens, c.num_heads * c.head_dim, dtype=self._dtype)
        q_norm, k_norm = (None, None) if norms is None else (norms[0].data_ptr(), norms[1].data_ptr())
        self._attend(
            tokens,
            c.num_heads,
            c.num_kv_heads,
            c.head_dim,
            kv.shape[2],
            c.sliding_window or 0,
            c.norm_eps,
            qkv.data_ptr(),
            batch.cos.data_ptr(),
            batch.sin.data_ptr(),
            batch.slots.data_ptr(),
            batch.starts.data_ptr(),
            q_norm,
            k_norm,
            kv[0].data_ptr(),
            kv[1].data_ptr(),
            out.data_ptr(),
        )
        return out


def _bind(lib: ctypes.CDLL, name: str, argtypes: list[Any]) -> Callable[..., None]:
    function: ctypes._NamedFuncPointer = getattr(lib, name)
    function.argtypes = argtypes
    function.restype = None
    return function
