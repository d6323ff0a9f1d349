"""The way to the PyTorch runtime of TensorRT-LLM: a quantized Hugging Face checkpoint and the LLM API's arguments.

Sources: NVIDIA/Model-Optimizer examples/llm_ptq/hf_ptq.py @ 9196696d; NVIDIA/TensorRT-LLM
tensorrt_llm/llmapi/llm_args.py in the generations of releases.py.
"""

from __future__ import annotations

from typing import Any

from trtspec.methods.model import Checkpoint
from trtspec.trtllm.engine_flow import EngineLimits
from trtspec.trtllm.releases import Release

# What a plan can spell out today; methods with heads need the head's folder and layers.
PLANNED = ("none", "draft_target", "ngram")


def quantize_argv(model: Checkpoint, model_dir: str, output_dir: str) -> list[str]:
    """FP8 weights through ModelOpt."""
    quantization = model.quantization
    return [
        *("python3", "examples/llm_ptq/hf_ptq.py"),
        *("--pyt_ckpt_path", model_dir),
        *("--export_path", output_dir),
        *("--qformat", "fp8"),
        *("--kv_cache_qformat", "fp8" if quantization.kv_cache == "fp8" else "none"),
        *("--calib_size", str(quantization.calibration.samples)),
        *("--calib_seq", str(quantization.calibration.max_length)),
        *("--dataset", quantization.calibration.dataset),
    ]


def llm_arguments(
    model: Checkpoint,
    model_dir: str,
    limits: EngineLimits,
    *,
    free_fraction: float,
    block_reuse: bool,
    speculative: dict[str, Any] | None,
) -> dict[str, Any]:
    """Keyword arguments of tensorrt_llm.LLM."""
    kv_cache: dict[str, Any] = {"enable_block_reuse": block_reuse, "free_gpu_memory_fraction": free_fraction}
    if model.quantization.kv_cache == "fp8":
        kv_cache["dtype"] = "fp8"
    arguments: dict[str, Any] = {
        "model": model_dir,
        "backend": "pytorch",
        "dtype": model.dtype,
        "tensor_parallel_size": model.tensor_parallel,
        "pipeline_parallel_size": model.pipeline_parallel,
        "max_batch_size": limits.max_batch_size,
        "max_input_len": limits.max_input_len,
        "max_seq_len": limits.max_seq_len,
        "max_num_tokens": limits.max_num_tokens,
        "enable_chunked_prefill": True,
        "kv_cache_config": kv_cache,
    }
    return arguments if speculative is None else {**arguments, "speculative_config": speculative}


def speculative_config(
    release: Release, method: str, *, max_draft_len: int, max_ngram: int | None = None, draft_dir: str | None = None
) -> dict[str, Any] | None:
    """``speculative_config`` of the LLM API in this release's spelling; None for plain decoding.

    ``speculative_model_dir`` is the key that every generation takes; the longest n-gram is always written because its
    default differs between them.
    """
    spelling = release.spelling(method, "pytorch")
    if spelling is None or spelling.value is None or max_draft_len == 0:
        return None
    config: dict[str, Any] = {"decoding_type": spelling.value, "max_draft_len": max_draft_len}
    if max_ngram is not None:
        config["max_matching_ngram_size"] = max_ngram
    if draft_dir is not None:
        config["speculative_model_dir"] = draft_dir
    return config
