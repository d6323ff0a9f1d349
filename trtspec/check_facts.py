"""What a check knows beside the spec: of each model, and of the machine. Whatever was not looked at is None."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trtspec.errors import TrtspecError
from trtspec.known import Facts


class Headers(Facts, Protocol):
    """The part of a CheckpointFacts that a check needs."""

    @property
    def quantization(self) -> str | None: ...


class Vocabulary(Protocol):
    """The part of a Tokenizer that a check needs."""

    @property
    def vocab_size(self) -> int: ...
    def token(self, token_id: int, /) -> str | None: ...


@dataclass(frozen=True)
class ModelFacts:
    """One model as far as it is on disk. ``problem`` says why it could not be read."""

    headers: Headers | None = None
    vocabulary: Vocabulary | None = None
    problem: TrtspecError | None = None


class Gpu(Protocol):
    """``compute`` is the compute capability, "8.9" for Ada."""

    @property
    def name(self) -> str: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def compute(self) -> str: ...


@dataclass(frozen=True)
class MachineFacts:
    """``memory_bytes`` is what this process may still take; ``disk_free_bytes`` is of the engines' folder; None: not
    known. ``compiler`` is the system's C++ compiler; ``accelerated``: TensorRT-LLM and a GPU are here.
    ``foreign_hosts``: those asked for that are no address of this machine.
    """

    memory_bytes: int | None = None
    disk_free_bytes: int | None = None
    compiler: str | None = None
    gpus: Sequence[Gpu] = ()
    accelerated: bool = False
    busy_ports: frozenset[int] = frozenset()
    foreign_hosts: frozenset[str] = frozenset()


@dataclass(frozen=True)
class CheckFacts:
    """``models`` is by role: "target", "draft", "drafts.0"; a role that is absent is not on disk."""

    models: Mapping[str, ModelFacts] = field(default_factory=dict)
    machine: MachineFacts | None = None
