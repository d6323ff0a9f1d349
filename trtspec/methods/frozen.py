"""The base of every value of the spec, and the way its rules refuse one."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticCustomError


class Frozen(BaseModel):
    """A strict, immutable value of the spec: unknown keys are errors, numbers are not read from strings."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    shorthand: ClassVar[str | None] = None  # the key that a bare word in this value's place stands for


_CUT = 60  # characters of a user's text that a message repeats


def printable(text: str) -> str:
    """The user's text as one line of a message: control characters escaped, a long text cut."""
    cut = text if len(text) <= _CUT else f"{text[:_CUT]}..."
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in cut)


def refused(key: str, message: str, hint: str = "") -> PydanticCustomError:
    """The error that a rule over several keys raises. ``key`` is the dotted path, below the model that checks, of the
    value to mend ("" for the model itself)."""
    # pydantic formats the message with the context, so a brace of the user's text must not be read as a field.
    return PydanticCustomError("rule", "{text}", {"text": message, "key": key, "hint": hint})
