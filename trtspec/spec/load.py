"""A spec file to a Spec; the one place that reads YAML. Every error says where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from trtspec.errors import SpecError
from trtspec.methods import METHODS
from trtspec.spec.model import Spec
from trtspec.spec.nodes import compose
from trtspec.spec.reader import Mark, Reader, last_key
from trtspec.spec.source import read_text


@dataclass(frozen=True)
class Loaded:
    """A file as read: the spec, or every fault found in it, in the order of the file."""

    spec: Spec | None
    errors: tuple[SpecError, ...]


def load_spec(path: Path) -> Spec:
    """The spec of a file. Raises SpecError, the file's first."""
    loaded = read_spec(path)
    if loaded.spec is None:
        raise loaded.errors[0]
    return loaded.spec


def read_spec(path: Path) -> Loaded:
    """The spec of a file, or all that is wrong with it."""
    try:
        return parse_spec(read_text(path), str(path), path.absolute().parent)
    except SpecError as error:
        return Loaded(None, (error,))


def parse_spec(text: str, name: str, folder: Path) -> Loaded:
    """``name`` stands for the file in messages; relative paths resolve against ``folder``."""
    reader = Reader()
    try:
        data = reader.read(compose(text, name), Spec)
    except SpecError as error:  # nothing more can be read
        return Loaded(None, _in_order({*reader.errors, error}))
    try:
        spec = Spec.model_validate(data)
    except ValidationError as invalid:
        errors = [*reader.errors, *_refusals(invalid, reader)]
        return Loaded(None, _in_order(errors))
    if reader.errors:
        return Loaded(None, _in_order(reader.errors))
    return Loaded(spec.located(folder, reader.marks), ())


def _in_order(errors: Iterable[SpecError]) -> tuple[SpecError, ...]:
    return tuple(sorted(errors, key=lambda error: (error.line or 0, error.column or 0)))


def _refusals(invalid: ValidationError, reader: Reader) -> list[SpecError]:
    """The model's refusals, less those that only follow from a value that could not be read or a misspelt key."""
    found = []
    unread = {error.where for error in reader.errors}
    for details in invalid.errors(include_url=False):
        where = _dotted(details)
        if reader.errors and (where in unread or _compares(details)):
            continue
        if not (details["type"] == "missing" and where in reader.meant):
            found.append(_refusal(details, where, reader.marks))
    return found


def _compares(details: ErrorDetails) -> bool:
    """Whether a rule looked at several keys, some of which may stand for values that could not be read."""
    return details["type"] == "rule" and bool(details["ctx"]["key"])


def _dotted(details: ErrorDetails) -> str:
    parts = [str(part) for part in details["loc"]]
    if parts[:1] == ["speculation"] and parts[1:2] and parts[1] in METHODS:
        del parts[1]  # the union's tag, which is no key
    key = details.get("ctx", {}).get("key", "") if details["type"] == "rule" else ""
    return ".".join([*parts, *([key] if key else [])])


def _refusal(details: ErrorDetails, where: str, marks: Mapping[str, Mark]) -> SpecError:
    line, column = _nearest_mark(where, marks)
    message, hint = _said(details, where)
    code = "missing_key" if details["type"] == "missing" else "wrong_value"
    return SpecError(message, code=code, where=where or None, line=line, column=column, hint=hint)


def _nearest_mark(where: str, marks: Mapping[str, Mark]) -> Mark:
    parts = where.split(".")
    while parts and ".".join(parts) not in marks:
        parts.pop()
    return marks[".".join(parts)]


_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}


def _said(details: ErrorDetails, where: str) -> tuple[str, str | None]:
    key = last_key(where)
    kind, context, given = details["type"], details.get("ctx", {}), details["input"]
    if kind == "rule":
        return context["text"], context["hint"] or None
    if kind == "missing":
        return f"{where} is missing", f"write {key}:"
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return f"{key} must be {words} {_number(context[name])}, not {_number(given)}", None
    if kind in ("string_too_short", "too_short"):
        return f"{key} must not be empty", "write at least one value" if kind == "too_short" else "write a value"
    return f"{key}: {details['msg']}", None


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and abs(value) < 1e6 else str(value)
