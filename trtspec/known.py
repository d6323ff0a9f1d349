"""What is known of the models that a spec names, and what follows from it and the spec alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import trtspec
from trtspec.methods.model import Checkpoint
from trtspec.runtime.config import ModelConfig
from trtspec.spec.model import DEFAULT_SEQ_LEN, Spec
from trtspec.trtllm import engine_flow, llm_flow
from trtspec.trtllm.engine_flow import EngineLimits
from trtspec.trtllm.releases import Release, Runtime


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


def refusal_of(spec: Spec, release: Release, runtime: Runtime) -> str | None:
    """Why method, release and runtime do not go together, or are not planned by us yet; None where they do."""
    method = spec.speculation.method
    why = release.refusal(method, runtime, version=getattr(spec.speculation, "version", None))
    planned = {"tensorrt": engine_flow.PLANNED, "pytorch": llm_flow.PLANNED}.get(runtime, (method,))
    if why is None and method not in planned:
        return (
            f"method {method} is not built for runtime {runtime} by trtspec {trtspec.__version__}; "
            f"nearest that is: one of {', '.join(planned)}"
        )
    return why


def limits_of(spec: Spec, facts: Facts | None) -> EngineLimits:
    positions = DEFAULT_SEQ_LEN if facts is None else facts.config.max_positions
    return EngineLimits(
        max_batch_size=spec.limits.max_batch_size,
        max_input_len=spec.limits.input_len(positions),
        max_seq_len=spec.limits.seq_len(positions),
        max_num_tokens=spec.limits.max_num_tokens,
    )
