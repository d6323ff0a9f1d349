"""What is known of the models that a spec names, and what follows from it and the spec alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from trtspec.methods.model import Checkpoint
from trtspec.runtime.config import ModelConfig
from trtspec.spec.model import Spec
from trtspec.trtllm.engine_flow import EngineLimits

DEFAULT_MAX_SEQ_LEN = 8192


class Facts(Protocol):
    """The part of a CheckpointFacts that a plan needs."""

    @property
    def config(self) -> ModelConfig: ...
    @property
    def dtype(self) -> str: ...
    @property
    def parameters(self) -> int: ...


@dataclass(frozen=True)
class Known:
    """A model that is on disk. ``identity`` hashes all that a build reads of it; None: it was not hashed before."""

    path: Path
    facts: Facts
    identity: str | None
    revision: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)  # relative name -> sha256
    tokenizer: str | None = None  # folder, where it is not the model's own


def models_of(spec: Spec) -> dict[str, Checkpoint]:
    """Role -> model: the target, and what the method drafts with."""
    return {"target": spec.target, **spec.speculation.model_refs()}


def spec_path(role: str) -> str:
    """The dotted path of a role's model in the spec."""
    return role if role == "target" else f"speculation.{role}"


def pack_dtype(wanted: str, facts: Facts | None) -> str:
    """``auto`` is the checkpoint's own type; block-quantized weights are unpacked to bfloat16."""
    if wanted != "auto":
        return wanted
    own = facts.dtype if facts is not None else "bfloat16"
    return own if own in ("float32", "bfloat16", "float16") else "bfloat16"


def limits_of(spec: Spec, facts: Facts | None) -> EngineLimits:
    most = facts.config.max_positions if facts is not None else DEFAULT_MAX_SEQ_LEN
    max_seq_len = spec.limits.max_seq_len or min(most, DEFAULT_MAX_SEQ_LEN)
    return EngineLimits(
        max_batch_size=spec.limits.max_batch_size,
        max_input_len=min(spec.limits.max_input_len or max_seq_len, max_seq_len - 1),
        max_seq_len=max_seq_len,
        max_num_tokens=spec.limits.max_num_tokens,
    )
