"""Looks at a spec's models and this machine as far as they are on disk, and checks the spec against them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trtspec.check import check
from trtspec.check_facts import CheckFacts, ModelFacts
from trtspec.checkpoints.facts import read_facts
from trtspec.errors import BuildError, TrtspecError
from trtspec.finding import Finding
from trtspec.inventory import locate
from trtspec.known import models_of
from trtspec.machine import read_machine
from trtspec.methods.model import Checkpoint
from trtspec.spec.model import Spec


def examine(spec: Spec, engines: Path, ports: Mapping[int, str] | None = None) -> list[Finding]:
    """What `trtspec check` says. ``ports`` (port -> host) are looked at too. Uses no network."""
    models = {role: _facts(spec, model) for role, model in models_of(spec).items()}
    known = {role: facts for role, facts in models.items() if facts is not None}
    return check(spec, CheckFacts(known, read_machine(engines.absolute(), ports)))


def require_good(spec: Spec, engines: Path) -> None:
    """Raises BuildError with the gravest finding where `trtspec check` would fail: no work starts on such a spec."""
    errors = [finding for finding in examine(spec, engines) if finding.severity == "error"]
    if errors:
        first, more = errors[0], len(errors) - 1
        hint = f"{more} more: see `trtspec check`" if more else None
        raise BuildError(
            first.message,
            code=first.code,
            where=first.where,
            line=first.line,
            column=first.column,
            hint="; ".join(part for part in (first.hint, hint) if part) or None,
        )


def _facts(spec: Spec, model: Checkpoint) -> ModelFacts | None:
    """None where the model is not on disk."""
    headers = None
    try:
        path = locate(spec, model)
        if path is None:
            return None
        from trtspec.checkpoints.tokenizer import load_tokenizer  # brings tokenizers, which a bare install lacks

        headers = read_facts(path)
        return ModelFacts(headers, load_tokenizer(path if model.tokenizer is None else spec.folder / model.tokenizer))
    except TrtspecError as error:
        return ModelFacts(headers, problem=error)
