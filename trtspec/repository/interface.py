"""The tensors of the Triton models: one table, from which config.pbtxt is written and requests are read.

Names and types of the front are those of upstream's ensemble and BLS models (TensorRT-LLM
triton_backend/all_models/inflight_batcher_llm, commit 2a9abd9), so that existing clients work, and ours.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tensor:
    """``type`` is Triton's word after TYPE_; ``dims`` are without the batch dimension, -1 is any length."""

    name: str
    type: str
    dims: tuple[int, ...] = (1,)
    optional: bool = True


def front_name(name: str) -> str:
    return name


def unary_name(name: str) -> str:
    return f"{name}_unary"


def engine_name(name: str) -> str:
    return f"{name}__engine"


# Triton's Python backend makes each model's BLS calls on so many threads (its `thread-pool-size`). `serve` sets more,
# and says so to the models in the environment variable of this name; some are kept for calls that must not wait.
BLS_THREADS = "TRTSPEC_BLS_THREADS"
BLS_THREADS_DEFAULT = 32
BLS_THREADS_SERVED = 128
BLS_THREADS_KEPT = 8

MODELS = (front_name, unary_name, engine_name)  # what a repository of the reference runtime holds


def is_front(model: str) -> bool:
    """Whether a model's name is that of a front (what users call), not of a relay or an engine."""
    return "__" not in model and not model.endswith("_unary")


def spec_of(model: str) -> str:
    """The name of the spec that a model belongs to; a spec's name holds no "__" and does not end in "_unary"."""
    return model.partition("__")[0].removesuffix("_unary")


# What a request may say. `command` asks the front itself; `stop` with a request id cancels that request, as upstream.
FRONT_INPUTS: tuple[Tensor, ...] = (
    Tensor("text_input", "STRING"),
    Tensor("messages", "STRING"),
    Tensor("input_ids", "INT32", (-1,)),
    Tensor("max_tokens", "INT32"),
    Tensor("min_tokens", "INT32"),
    Tensor("stream", "BOOL"),
    Tensor("temperature", "FP32"),
    Tensor("top_k", "INT32"),
    Tensor("top_p", "FP32"),
    Tensor("min_p", "FP32"),
    Tensor("repetition_penalty", "FP32"),
    Tensor("presence_penalty", "FP32"),
    Tensor("frequency_penalty", "FP32"),
    Tensor("seed", "UINT64"),
    Tensor("random_seed", "UINT64"),
    Tensor("stop_words", "STRING", (-1,)),
    Tensor("bad_words", "STRING", (-1,)),
    Tensor("end_id", "INT32"),
    Tensor("pad_id", "INT32"),
    Tensor("ignore_eos", "BOOL"),
    Tensor("return_log_probs", "BOOL"),
    Tensor("exclude_input_in_output", "BOOL"),
    Tensor("route", "STRING"),
    Tensor("speculation", "STRING"),
    Tensor("max_draft_len", "INT32"),
    Tensor("num_draft_tokens", "INT32"),
    Tensor("stop", "BOOL"),
    Tensor("command", "STRING"),
    # Taken from existing clients: only values that change nothing are accepted.
    Tensor("beam_width", "INT32"),
    Tensor("num_return_sequences", "INT32"),
    Tensor("length_penalty", "FP32"),
    Tensor("return_context_logits", "BOOL"),
    Tensor("return_generation_logits", "BOOL"),
    Tensor("return_perf_metrics", "BOOL"),
    Tensor("return_num_input_tokens", "BOOL"),
    Tensor("return_num_output_tokens", "BOOL"),
    Tensor("use_draft_logits", "BOOL"),
    Tensor("decoder_text_input", "STRING"),
    Tensor("embedding_bias_words", "STRING", (-1,)),
    Tensor("embedding_bias_weights", "FP32", (-1,)),
    Tensor("prompt_embedding_table", "FP16", (-1, -1)),
    Tensor("prompt_table_extra_id", "UINT64"),
    Tensor("prompt_vocab_size", "INT32"),
    Tensor("lora_task_id", "UINT64"),
    Tensor("lora_weights", "FP16", (-1, -1)),
    Tensor("lora_config", "INT32", (-1, 3)),
    Tensor("guided_decoding_guide_type", "STRING"),
    Tensor("guided_decoding_guide", "STRING"),
)

# `text_output`, `output_ids` and `output_log_probs` come in pieces when `stream` is true; the others come once, at the
# end. `details` is the JSON of `trtspec generate`, less what has a tensor of its own; `status` answers `command`.
FRONT_OUTPUTS: tuple[Tensor, ...] = (
    Tensor("text_output", "STRING", (-1,), optional=False),
    Tensor("output_ids", "INT32", (-1, -1), optional=False),
    Tensor("output_log_probs", "FP32", (-1, -1), optional=False),
    Tensor("finish_reason", "STRING", (-1,), optional=False),
    Tensor("num_input_tokens", "INT32", optional=False),
    Tensor("num_output_tokens", "INT32", optional=False),
    Tensor("acceptance_rate", "FP32", optional=False),
    Tensor("total_accepted_draft_tokens", "INT32", optional=False),
    Tensor("total_draft_tokens", "INT32", optional=False),
    Tensor("speculation", "STRING", optional=False),
    Tensor("details", "STRING", optional=False),
    Tensor("status", "STRING", optional=False),
)

# The internal engine: one JSON command in, one JSON answer out (trtspec.triton.wire).
ENGINE_INPUTS: tuple[Tensor, ...] = (Tensor("command", "STRING", optional=False),)
ENGINE_OUTPUTS: tuple[Tensor, ...] = (Tensor("event", "STRING", optional=False),)
