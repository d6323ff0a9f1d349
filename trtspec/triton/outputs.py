"""A reply's parts as the front's output tensors, batch dimension included. Shapes: N ids of this response."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

Outputs = dict[str, np.ndarray[Any, Any]]

APART = ("text", "token_ids", "log_probs", "speculation")  # of a result: they have tensors of their own


def piece(text: str, ids: Sequence[int], log_probs: Sequence[float] | None) -> Outputs:
    """What a step gave: text_output [1, 1], output_ids [1, 1, N], output_log_probs [1, 1, N] where asked for."""
    outputs = {"text_output": _text(text), "output_ids": np.array([[ids]], dtype=np.int32)}
    if log_probs is not None:
        outputs["output_log_probs"] = np.array([[log_probs]], dtype=np.float32)
    return outputs


def summary(result: dict[str, Any]) -> Outputs:
    """What is known at the end only. A rate without a divisor is left out: JSON has no NaN."""
    speculation, usage = result["speculation"], result["usage"]
    outputs = {
        "finish_reason": _text(result["finish_reason"]),
        "num_input_tokens": _count(usage["prompt_tokens"]),
        "num_output_tokens": _count(usage["completion_tokens"]),
        "total_accepted_draft_tokens": _count(speculation["accepted"] or 0),
        "total_draft_tokens": _count(speculation["drafted"] or 0),
        "speculation": _text(json.dumps(speculation)),
        "details": _text(json.dumps(_details(result))),
    }
    if speculation["acceptance_rate"] is not None:
        outputs["acceptance_rate"] = np.array([[speculation["acceptance_rate"]]], dtype=np.float32)
    return outputs


def status(document: dict[str, Any]) -> Outputs:
    return {"status": _text(json.dumps(document))}


def stopped() -> Outputs:
    """The answer to ``stop``: the stopped request gets its own end."""
    return {"text_output": _text(""), "finish_reason": _text("cancelled")}


def _details(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name not in APART}


def _text(value: str) -> np.ndarray[Any, Any]:
    return np.array([[value.encode()]], dtype=np.object_)


def _count(value: int) -> np.ndarray[Any, Any]:
    return np.array([[value]], dtype=np.int32)
