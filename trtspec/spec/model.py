"""What the user wrote, as one frozen value. See the spec's reference in docs/spec.md."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PrivateAttr

from trtspec.methods.base import Frozen
from trtspec.methods.draft_target import DraftTarget
from trtspec.methods.model import Checkpoint
from trtspec.methods.ngram import Ngram
from trtspec.methods.none import NoSpeculation

RuntimeName = Literal["auto", "tensorrt", "pytorch", "reference"]
Kind = Literal["code", "structured", "chat", "creative"]
Speculation = Annotated[NoSpeculation | Ngram | DraftTarget, Field(discriminator="method")]


class GpuMemory(Frozen):
    free_fraction: float = Field(0.9, gt=0, le=1)
    total_bytes: int | None = Field(None, ge=1)
    reserve_bytes: int | None = Field(None, ge=0)
    block_reuse: bool = True


class Limits(Frozen):
    max_batch_size: int = Field(8, ge=1)
    max_seq_len: int | None = Field(None, ge=2)  # None: min(the model's, 8192)
    max_input_len: int | None = Field(None, ge=1)  # None: max_seq_len - 1
    max_num_tokens: int = Field(8192, ge=1)
    kv_tokens: int | None = Field(None, ge=1)
    gpu_memory: GpuMemory = GpuMemory()


class Route(Frozen):
    kind: Kind = "chat"
    speculation: Literal["auto", "always", "never"] = "auto"
    max_draft_len: int | None = Field(None, ge=0)


class Probe(Frozen):
    requests: int = Field(10, ge=1)
    every_requests: int = Field(200, ge=1)
    every_seconds: float = Field(300, gt=0)


class OffWhen(Frozen):
    batch_above: int | None = None
    prompt_tokens_above: int | None = None
    temperature_above: float | None = None
    max_tokens_below: int | None = None


class Gate(Frozen):
    policy: Literal["threshold", "break_even", "off"] = "threshold"
    min_acceptance: float = Field(0.40, ge=0, le=1)
    min_judged: int = Field(1000, ge=1)
    min_requests: int = Field(20, ge=1)
    half_life: float = Field(2000, gt=0)
    hysteresis: float = Field(0.03, ge=0, lt=1)
    probe: Probe = Probe()
    dwell_seconds: float = Field(60, ge=0)
    when_off: Literal["plain", "report"] = "plain"
    off_when: OffWhen = OffWhen()


class Serving(Frozen):
    host: str = "127.0.0.1"
    http_port: int = Field(8000, ge=1, le=65535)
    grpc_port: int = Field(8001, ge=1, le=65535)
    metrics_port: int = Field(8002, ge=1, le=65535)


class ReferenceOptions(Frozen):
    threads: int | None = Field(None, ge=1)
    exact: bool = False
    compile: Literal["auto", "on", "off"] = "auto"  # native CPU kernels through the system's C++ compiler


class Spec(Frozen):
    """The whole file. ``folder`` is where the file lies: relative model paths resolve against it."""

    name: str
    release: str = "1.2.1"
    runtime: RuntimeName = "auto"
    target: Checkpoint
    speculation: Speculation = NoSpeculation()
    limits: Limits = Limits()
    routes: dict[str, Route] = Field(default_factory=lambda: {"default": Route()})
    gate: Gate = Gate()
    serving: Serving = Serving()
    reference: ReferenceOptions = ReferenceOptions()

    _folder: Path = PrivateAttr(default=Path("."))
    _marks: dict[str, tuple[int, int]] = PrivateAttr(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self._folder

    def position(self, dotted: str) -> tuple[int | None, int | None]:
        """Line and column (from 1) of a dotted path, or of its nearest parent the user wrote."""
        parts = dotted.split(".")
        while parts:
            mark = self._marks.get(".".join(parts))
            if mark is not None:
                return mark
            parts.pop()
        return None, None
