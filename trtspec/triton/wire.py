"""What the front and the internal engine model say to each other: JSON, one command in, one answer out.

Commands: ``{"op": "generate", "request": {...}}`` starts a request; ``{"op": "pull"}`` answers
``{"events": [step, ...]}`` when there are any, those of all requests at once; ``{"op": "cancel", "id": ...}``;
``{"op": "status"}``; ``{"op": "hello"}`` (capabilities and the engine's process id). Any may answer
``{"error": text}``.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from trtspec.runtime.types import Capabilities, EngineRequest, EngineStatus, Sampling, Step

_STEP_DEFAULTS = {field.name: field.default for field in dataclasses.fields(Step)}


def encode(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def decode(data: bytes) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(data)
    return message


def request_to_dict(request: EngineRequest) -> dict[str, Any]:
    return {**dataclasses.asdict(request), "end_ids": sorted(request.end_ids)}


def request_from_dict(data: Mapping[str, Any]) -> EngineRequest:
    return EngineRequest(
        **{
            **data,
            "prompt_ids": tuple(data["prompt_ids"]),
            "sampling": Sampling(**data["sampling"]),
            "end_ids": frozenset(data["end_ids"]),
            "stop": tuple(data["stop"]),
            "bad_words": tuple(map(tuple, data["bad_words"])),
        }
    )


def step_to_dict(step: Step) -> dict[str, Any]:
    """Only what differs from a Step's defaults: most steps are a few ids and three counts."""
    return {name: value for name, value in vars(step).items() if value != _STEP_DEFAULTS[name]}


def step_from_dict(data: Mapping[str, Any]) -> Step:
    log_probs = data.get("log_probs")
    return Step(
        **{
            **data,
            "token_ids": tuple(data.get("token_ids", ())),
            "log_probs": None if log_probs is None else tuple(log_probs),
        }
    )


def hello_to_dict(capabilities: Capabilities, pid: int) -> dict[str, Any]:
    return {"capabilities": dataclasses.asdict(capabilities), "pid": pid}


def capabilities_from_dict(data: Mapping[str, Any]) -> Capabilities:
    return Capabilities(**data)


def status_to_dict(status: EngineStatus) -> dict[str, Any]:
    return dataclasses.asdict(status)


def status_from_dict(data: Mapping[str, Any]) -> EngineStatus:
    return EngineStatus(**data)
