"""The lines of a requests file. Text in, values out; whoever calls reads the file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trtspec.errors import RequestError, UserError
from trtspec.front.request import Request, parse_request, shown


@dataclass(frozen=True)
class Line:
    """``number`` counts the file's lines from 1. ``request`` is None exactly when ``error`` is not."""

    id: str
    number: int
    request: Request | None = None
    error: RequestError | None = None


def read_lines(data: bytes, name: str) -> list[Line]:
    """Every line that is not blank. Raises UserError for the first that is no JSON; a bad value is its line's error.

    ``name`` is the file's, for messages.
    """
    values = [
        (number, _json(raw, number, name))
        for number, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1)
        if raw.strip()
    ]
    lines: list[Line] = []
    seen: dict[str, int] = {}
    for number, value in values:
        line = _parse(value, number)
        first = seen.setdefault(line.id, number)
        if first != number and line.error is None:
            line = Line(line.id, number, error=_used_before(line.id, first))
        lines.append(line)
    return lines


def error_document(line_id: str, error: RequestError) -> dict[str, Any]:
    """What a line with a bad value answers."""
    return {"id": line_id, "error": {"field": error.field, "message": error.message}}


def _parse(value: Any, number: int) -> Line:
    default_id = str(number - 1)
    try:
        request = parse_request(value, default_id)
    except RequestError as error:
        given = value.get("id") if isinstance(value, dict) and error.field != "id" else None
        return Line(given if isinstance(given, str) and given else default_id, number, error=error)
    return Line(request.id, number, request)


def _used_before(line_id: str, first: int) -> RequestError:
    return RequestError(
        "id", f"id {shown(line_id)} is already the id of line {first}", hint="give every line its own id"
    )


def _json(raw: bytes, number: int, name: str) -> Any:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise _no_json(name, number, error.start + 1, f"byte {error.start + 1} is not UTF-8") from None
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise _no_json(name, number, error.colno, f"{error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError) as error:  # a key twice, a number too long to read, brackets too deep
        raise _no_json(name, number, None, str(error)) from None


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [key for key, _ in pairs]
        twice = next(key for key in names if names.count(key) > 1)
        raise ValueError(f"the key {shown(twice)} is there twice")
    return value


def _no_json(name: str, number: int, column: int | None, reason: str) -> UserError:
    return UserError(
        f"line {number} of {name} is not a JSON object: {reason}",
        code="not_json",
        where=name,
        line=number,
        column=column,
        hint='write one request per line, as {"prompt": "..."}; nothing was run',
    )
