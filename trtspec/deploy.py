"""What was built to what is opened: spec, facts and artifacts become the engine's options and the front's settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from trtspec.front.settings import FrontSettings, OffWhen, RouteSettings
from trtspec.runtime.config import ModelConfig
from trtspec.runtime.kernels import LIBRARY
from trtspec.runtime.options import EngineOptions
from trtspec.spec.model import Spec


class Facts(Protocol):
    """The part of the target's CheckpointFacts that matters here."""

    @property
    def config(self) -> ModelConfig: ...


class Built(Protocol):
    """The part of an Artifact that matters here: the folder."""

    @property
    def path(self) -> Path: ...


@dataclass(frozen=True)
class PackedFacts:
    """What a packed checkpoint's own config.json says."""

    config: ModelConfig


def packed_facts(config_json: str) -> PackedFacts:
    return PackedFacts(ModelConfig.from_dict(json.loads(config_json)))


def engine_options(
    spec: Spec, facts: Facts, artifacts: Mapping[str, Built], *, vocab_size: int | None = None, device: str = "auto"
) -> EngineOptions:
    """``vocab_size``: ids of the target's tokenizer; output rows beyond are padding. Device: torch's word for it."""
    positions = facts.config.max_positions
    draft, kernels = artifacts.get("draft"), artifacts.get("kernels")
    return EngineOptions(
        target=str(artifacts["target"].path),
        draft=None if draft is None else str(draft.path),
        method=spec.speculation.method,
        method_options=_method_options(spec),
        max_draft_len=spec.speculation.draft_len,
        max_batch_size=spec.limits.max_batch_size,
        max_seq_len=spec.limits.seq_len(positions),
        max_input_len=spec.limits.input_len(positions),
        max_num_tokens=spec.limits.max_num_tokens,
        kv_tokens=spec.limits.kv_tokens,
        vocab_size=vocab_size,
        threads=spec.reference.threads,
        compile=spec.reference.compile,
        kernels=None if kernels is None else str(kernels.path / LIBRARY),
        device=device,
    )


def front_settings(spec: Spec, facts: Facts, *, runtime: str = "reference") -> FrontSettings:
    """``runtime`` is the resolved one, never "auto"."""
    positions = facts.config.max_positions
    return FrontSettings(
        name=spec.name,
        runtime=runtime,
        method=spec.speculation.method,
        max_draft_len=spec.speculation.draft_len,
        max_seq_len=spec.limits.seq_len(positions),
        max_input_len=spec.limits.input_len(positions),
        max_batch_size=spec.limits.max_batch_size,
        routes=_routes(spec),
        off_when=OffWhen(**spec.gate.off_when.model_dump()),
    )


def _routes(spec: Spec) -> dict[str, RouteSettings]:
    routes = {name: RouteSettings(**route.model_dump()) for name, route in spec.routes.items()}
    return {"default": RouteSettings(), **routes}


def _method_options(spec: Spec) -> dict[str, Any]:
    """The method's own keys; its models are artifacts, not options."""
    models = {path.split(".")[0] for path in spec.speculation.model_refs()}
    return spec.speculation.model_dump(mode="json", exclude={"method", *models})
