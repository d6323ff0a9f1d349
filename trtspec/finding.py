"""One thing that a check found, and where in the spec it comes from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from trtspec.errors import TrtspecError
from trtspec.spec.model import Spec

Severity = Literal["error", "warning", "info"]
_ORDER: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True)
class Finding:
    """``code`` is a stable slug; ``where`` a dotted path of the spec; line and column count from 1."""

    code: str
    severity: Severity
    where: str | None
    line: int | None
    column: int | None
    message: str
    hint: str | None = None

    def to_dict(self) -> dict[str, object]:
        return dataclasses.asdict(self)


def found(spec: Spec, severity: Severity, where: str, code: str, message: str, hint: str | None = None) -> Finding:
    """A finding at the place of the spec that ``where`` names."""
    line, column = spec.position(where)
    return Finding(code, severity, where, line, column, message, hint)


def finding_of(error: TrtspecError, spec: Spec | None = None, where: str | None = None) -> Finding:
    """An error as a finding; ``where`` is the place in the spec where the error knows none of its own."""
    if spec is None or where is None:
        return Finding(error.code, "error", error.where, error.line, error.column, error.message, error.hint)
    return found(spec, "error", where, error.code, error.message, error.hint)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The gravest first, then as they stand in the file."""
    return sorted(findings, key=lambda one: (_ORDER.index(one.severity), one.line or 0, one.column or 0))


def passes(findings: Iterable[Finding]) -> bool:
    return all(one.severity != "error" for one in findings)
