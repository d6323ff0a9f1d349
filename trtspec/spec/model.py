"""What the user wrote, as one frozen value. See the spec's reference in docs/spec.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PrivateAttr, field_validator, model_validator

from trtspec.methods import Speculation
from trtspec.methods.frozen import Frozen, printable, refused
from trtspec.methods.model import Checkpoint
from trtspec.methods.none import NoSpeculation

RuntimeName = Literal["auto", "tensorrt", "pytorch", "reference"]
Kind = Literal["code", "structured", "chat", "creative"]
DEFAULT_SEQ_LEN = 8192

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_RELEASE = re.compile(r"main|\d+\.\d+(\.\d+)?((a|b|rc)\d+)?")
_NAME_LIMIT = 200  # a folder's name takes 255 bytes, and the internal models append to it


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise refused(
            "", f'"{printable(name)}" cannot be a name', "use letters, digits, _ . and -, with a letter or digit first"
        )
    if "__" in name or name.endswith("_") or name.endswith("_unary"):
        raise refused(
            "",
            f'"{printable(name)}" cannot be a name: "__", a last "_" and a last "_unary" are kept for our own models',
            "choose a name without them",
        )
    if len(name) > _NAME_LIMIT:
        raise refused("", f"a name of {len(name)} characters is too long", f"at most {_NAME_LIMIT} characters")
    return name


def _check_release(release: str) -> str:
    if not _RELEASE.fullmatch(release):
        raise refused(
            "", f'"{printable(release)}" is not a TensorRT-LLM release', 'write it as "1.2.1", "1.3" or "main"'
        )
    return release


def _check_host(host: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.:\[\]-]+", host):
        raise refused("", f'"{printable(host)}" is not a host', "write an address or a name, as 127.0.0.1")
    return host


class GpuMemory(Frozen):
    """How the GPU's memory is shared out."""

    free_fraction: float = Field(0.9, gt=0, le=1, description="Share of free memory that both KV caches may take.")
    total_bytes: int | None = Field(None, ge=1, description="Memory to plan with; null is what the GPU has.")
    reserve_bytes: int | None = Field(None, ge=0, description="Memory left to others; null is the rest.")
    block_reuse: bool = Field(True, description="Whether KV blocks of a common beginning are shared.")

    @model_validator(mode="after")
    def _leaves_some(self) -> GpuMemory:
        if self.total_bytes is not None and self.reserve_bytes is not None and self.reserve_bytes >= self.total_bytes:
            raise refused(
                "reserve_bytes",
                f"reserve_bytes {self.reserve_bytes} leaves nothing of total_bytes {self.total_bytes}",
                "make reserve_bytes smaller than total_bytes",
            )
        return self


class Limits(Frozen):
    """Sizes that a request, a step and the server keep to. In-flight batching is always on."""

    max_batch_size: int = Field(8, ge=1, description="Requests in flight at once.")
    max_seq_len: int | None = Field(
        None, ge=2, description=f"Longest request, prompt and output; null is min(the model's, {DEFAULT_SEQ_LEN})."
    )
    max_input_len: int | None = Field(None, ge=1, description="Longest prompt; null is max_seq_len - 1.")
    max_num_tokens: int = Field(8192, ge=1, description="Prompt tokens a step may take in; longer prompts are chunked.")
    kv_tokens: int | None = Field(
        None,
        ge=1,
        description="KV cache of the reference runtime, in tokens; null is what fits half of the free memory, at most "
        "max_batch_size x max_seq_len.",
    )
    gpu_memory: GpuMemory = Field(GpuMemory(), description="GPU memory.")

    @model_validator(mode="after")
    def _room_for_output(self) -> Limits:
        longest = self.seq_len()
        if self.max_input_len is not None and self.max_input_len > longest - 1:
            unless = " (what it is at most unless written)" if self.max_seq_len is None else ""
            raise refused(
                "max_input_len",
                f"max_input_len {self.max_input_len} leaves no room for output in max_seq_len {longest}{unless}",
                f"write max_input_len: {longest - 1} or less, or a larger max_seq_len",
            )
        return self

    def seq_len(self, positions: int = DEFAULT_SEQ_LEN) -> int:
        """The longest request for a model with that many positions."""
        return min(positions, DEFAULT_SEQ_LEN) if self.max_seq_len is None else self.max_seq_len

    def input_len(self, positions: int = DEFAULT_SEQ_LEN) -> int:
        """The longest prompt for a model with that many positions; it leaves room for one token of output."""
        most = self.seq_len(positions) - 1
        return most if self.max_input_len is None else min(self.max_input_len, most)


class Route(Frozen):
    """One kind of traffic. A request names its route; an unknown name goes to ``default``."""

    kind: Kind = Field("chat", description="What the traffic is like; a label, on which nothing acts today.")
    speculation: Literal["auto", "always", "never"] = Field(
        "auto",
        description="always: on, whatever gate.off_when says. never: off, and a request may not ask for it. "
        "auto: on within gate.off_when.",
    )
    max_draft_len: int | None = Field(
        None, ge=0, description="At most the method's; 0 is plain decoding; null is the method's."
    )


class Probe(Frozen):
    """How often a route that is off is tried again. Read and validated; acts from a later version."""

    requests: int = Field(10, ge=1, description="Consecutive speculative requests that make one probe.")
    every_requests: int = Field(200, ge=1, description="Requests of the route between probes.")
    every_seconds: float = Field(300, gt=0, description="Seconds between probes, where that comes first.")


class OffWhen(Frozen):
    """Bounds beyond which a request is decoded plainly, unless it asks for `speculation: on` or its route is `always`.

    They act today.
    """

    batch_above: int | None = Field(None, ge=0, description="More requests in flight than this; null never.")
    prompt_tokens_above: int | None = Field(None, ge=0, description="A longer prompt than this; null never.")
    temperature_above: float | None = Field(None, ge=0, description="A higher temperature than this; null never.")
    max_tokens_below: int | None = Field(None, ge=1, description="A smaller max_tokens than this; null never.")


class Gate(Frozen):
    """Where speculation is switched off because it does not pay, and on again.

    Only `off_when` acts today. Every other key is read and validated, and acts from a later version: until then a route
    that is `auto` speculates, whatever its acceptance.
    """

    policy: Literal["threshold", "break_even", "off"] = Field(
        "threshold", description="threshold compares token acceptance; break_even the speed-up; off decides nothing."
    )
    min_acceptance: float = Field(0.40, ge=0, le=1, description="Token acceptance below which a route goes off.")
    min_judged: int = Field(1000, ge=1, description="Judged tokens before a route may go off.")
    min_requests: int = Field(20, ge=1, description="Requests before a route may go off.")
    half_life: float = Field(2000, gt=0, description="Judged tokens after which a count weighs half.")
    hysteresis: float = Field(0.03, ge=0, lt=1, description="How far above min_acceptance a probe must be.")
    probe: Probe = Field(Probe(), description="Trying again.")
    dwell_seconds: float = Field(60, ge=0, description="Shortest time between two decisions of a route.")
    when_off: Literal["plain", "report"] = Field(
        "plain", description="plain decodes without a draft; report only says so."
    )
    off_when: OffWhen = Field(OffWhen(), description="Bounds that come before the policy; see below.")


class Serving(Frozen):
    """Where the server listens."""

    host: Annotated[str, AfterValidator(_check_host)] = Field("127.0.0.1", description="Address to listen on.")
    http_port: int = Field(8000, ge=1, le=65535, description="HTTP.")
    grpc_port: int = Field(8001, ge=1, le=65535, description="gRPC.")
    metrics_port: int = Field(8002, ge=1, le=65535, description="Prometheus metrics.")

    @property
    def ports(self) -> Mapping[str, int]:
        return {"http_port": self.http_port, "grpc_port": self.grpc_port, "metrics_port": self.metrics_port}

    @model_validator(mode="after")
    def _distinct(self) -> Serving:
        taken: dict[int, str] = {}
        for key, port in self.ports.items():
            if port in taken:
                written, other = (key, taken[port]) if key in self.model_fields_set else (taken[port], key)
                raise refused(written, f"{written} and {other} are both {port}", "give each its own port")
            taken[port] = key
        return self


class ReferenceOptions(Frozen):
    """Switches of our own runtime."""

    threads: int | None = Field(None, ge=1, description="CPU threads; null is one for each core.")
    exact: bool = Field(False, description="Kernels that round alike for any number of rows; true is refused today.")
    compile: Literal["auto", "on", "off"] = Field(
        "auto", description="Native CPU kernels through the system's C++ compiler; auto where there is one."
    )


class Spec(Frozen):
    """The whole file. ``folder`` is where the file lies: relative model paths resolve against it."""

    name: Annotated[str, AfterValidator(_check_name)] = Field(
        description='Triton model and folder name: letters, digits, _ . -, no "__", not ending in "_" or "_unary".'
    )
    release: Annotated[str, AfterValidator(_check_release)] = Field(
        "1.2.1", description="TensorRT-LLM release, in quotes."
    )
    runtime: RuntimeName = Field("auto", description="What serves it; auto picks by machine, release and method.")
    target: Checkpoint = Field(description="The model to serve.")
    speculation: Speculation = Field(NoSpeculation(), description="The method and its options.")
    limits: Limits = Field(Limits(), description="Sizes.")
    routes: dict[str, Route] = Field(
        default_factory=lambda: {"default": Route()}, description="Name of the route: its settings. default is added."
    )
    gate: Gate = Field(Gate(), description="When speculation is off; only off_when acts today.")
    serving: Serving = Field(Serving(), description="Addresses.")
    reference: ReferenceOptions = Field(ReferenceOptions(), description="The reference runtime.")

    _folder: Path = PrivateAttr(default=Path("."))
    _marks: dict[str, tuple[int, int]] = PrivateAttr(default_factory=dict)

    @field_validator("routes", mode="after")
    @classmethod
    def _with_default(cls, routes: dict[str, Route]) -> dict[str, Route]:
        for name in routes:
            if not _NAME.fullmatch(name) or len(name) > _NAME_LIMIT:
                raise refused(
                    name,
                    f'"{printable(name)}" cannot be a route',
                    "use letters, digits, _ . and -, with a letter or digit first",
                )
        return routes if "default" in routes else {"default": Route(), **routes}

    @model_validator(mode="after")
    def _routes_within_method(self) -> Spec:
        most = self.speculation.draft_len
        for name, route in self.routes.items():
            if route.max_draft_len is not None and route.max_draft_len > most:
                raise refused(
                    f"routes.{name}.max_draft_len",
                    f"route {name} asks for max_draft_len {route.max_draft_len}, and method {self.speculation.method} "
                    f"drafts at most {most}",
                    f"write {most} or less for the route (0 is plain decoding), or a larger one for the method"
                    if most
                    else "leave it out of the route, or choose a method that drafts",
                )
        return self

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

    def located(self, folder: Path, marks: Mapping[str, tuple[int, int]]) -> Spec:
        """The same spec, knowing where it was written."""
        copy = self.model_copy()
        copy._folder = folder
        copy._marks = dict(marks)
        return copy
