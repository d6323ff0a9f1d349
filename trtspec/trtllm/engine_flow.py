"""The way to TensorRT engines (TensorRT-LLM up to 1.2.x): checkpoint, then ``trtllm-build``. Only argv, nothing is run.

Sources, NVIDIA/TensorRT-LLM: examples/quantization/quantize.py @ 059c97c1; examples/models/core/llama/
convert_checkpoint.py @ fd96a08b and qwen @ 65b31db1; tensorrt_llm/commands/build.py @ 65f1d153; the recipes of
examples/draft_target_model @ 567239fc, examples/ngram @ 2612fb4f and examples/lookahead @ 7ed07f06.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trtspec.methods.model import Checkpoint

# What a plan can spell out today; methods with heads need their own conversion scripts.
PLANNED = ("none", "draft_target", "ngram", "suffix", "lookahead")

_CONVERT: Mapping[str, str] = {
    "llama": "examples/models/core/llama/convert_checkpoint.py",
    "mistral": "examples/models/core/llama/convert_checkpoint.py",
    "smollm2": "examples/models/core/llama/convert_checkpoint.py",
    "qwen2": "examples/models/core/qwen/convert_checkpoint.py",
    "qwen3": "examples/models/core/qwen/convert_checkpoint.py",
}
_QUANTIZE = "examples/quantization/quantize.py"
_QFORMAT = {"none": "full_prec", "fp8": "fp8", "int8": "int8_wo"}


@dataclass(frozen=True)
class EngineLimits:
    max_batch_size: int
    max_input_len: int
    max_seq_len: int
    max_num_tokens: int


def needs_calibration(model: Checkpoint) -> bool:
    """Whether quantize.py makes the checkpoint; its FP8 and INT8 scales come from looking at texts."""
    return model.quantization.weights in ("fp8", "int8") or model.quantization.kv_cache != "none"


def quantize_argv(model: Checkpoint, model_dir: str, output_dir: str) -> list[str]:
    quantization = model.quantization
    argv = [
        *("python3", _QUANTIZE),
        *("--model_dir", model_dir),
        *("--output_dir", output_dir),
        *("--dtype", model.dtype),
        *("--qformat", _QFORMAT[quantization.weights]),
        *("--calib_dataset", quantization.calibration.dataset),
        *("--calib_size", str(quantization.calibration.samples)),
        *("--calib_max_seq_length", str(quantization.calibration.max_length)),
        *("--tp_size", str(model.tensor_parallel)),
        *("--pp_size", str(model.pipeline_parallel)),
    ]
    if quantization.kv_cache != "none":
        argv += ["--kv_cache_dtype", quantization.kv_cache]
    return argv


def convert_argv(model: Checkpoint, family: str, model_dir: str, output_dir: str) -> list[str] | None:
    """None where no conversion script of that family is known."""
    script = _CONVERT.get(family)
    if script is None:
        return None
    return [
        *("python3", script),
        *("--model_dir", model_dir),
        *("--output_dir", output_dir),
        *("--dtype", model.dtype),
        *("--tp_size", str(model.tensor_parallel)),
        *("--pp_size", str(model.pipeline_parallel)),
    ]


def build_argv(
    checkpoint_dir: str, output_dir: str, limits: EngineLimits, *, world_size: int, mode: str | None, max_draft_len: int
) -> list[str]:
    """One engine. ``mode`` and ``max_draft_len`` are the target's; a draft is a plain engine (mode None).

    Draft and verify requests share KV blocks only with paged context FMHA, in both engines.
    """
    argv = [
        "trtllm-build",
        *("--checkpoint_dir", checkpoint_dir),
        *("--output_dir", output_dir),
        *("--max_batch_size", str(limits.max_batch_size)),
        *("--max_input_len", str(limits.max_input_len)),
        *("--max_seq_len", str(limits.max_seq_len)),
        *("--max_num_tokens", str(limits.max_num_tokens)),
        *("--max_beam_width", "1"),
        *("--kv_cache_type", "paged"),
        *("--use_paged_context_fmha", "enable"),
    ]
    if world_size > 1:
        argv += ["--workers", str(world_size)]
    if mode is not None and max_draft_len > 0:
        argv += ["--speculative_decoding_mode", mode, "--max_draft_len", str(max_draft_len)]
    return argv
