"""Short ways to run one request through an engine."""

from __future__ import annotations

from collections.abc import Callable

from trtspec.runtime.engine import LocalEngine
from trtspec.runtime.types import EngineRequest, Sampling, Step

Open = Callable[..., LocalEngine]


def ask(engine: LocalEngine, prompt: list[int], max_tokens: int, k: int = 0, **changes: object) -> list[Step]:
    """Runs one request alone; ``changes`` are EngineRequest fields."""
    changes.setdefault("sampling", Sampling())
    changes.setdefault("id", "r")
    request = EngineRequest(prompt_ids=prompt, max_tokens=max_tokens, max_draft_len=k, **changes)  # type: ignore[arg-type]
    return list(engine.generate(request))


def ids(steps: list[Step]) -> list[int]:
    assert all(step.error is None for step in steps), steps[-1].error
    return [token for step in steps for token in step.token_ids]


def log_probs(steps: list[Step]) -> list[float]:
    return [value for step in steps for value in step.log_probs or ()]
