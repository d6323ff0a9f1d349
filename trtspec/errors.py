"""The whole error tree.

::

    TrtspecError              one message: what, where, what to do
    ├── UserError             the user can mend it                               exit 1
    │   ├── SpecError         the spec file: a wrong key, value or combination
    │   ├── SourceError       a model source that cannot be found or fetched
    │   ├── CheckpointError   a checkpoint that cannot be read or is of a wrong kind
    │   ├── RequestError      one request's field is out of range (``field``)
    │   ├── BuildError        a build step failed, or what is needed is not built
    │   ├── StoreError        the artifact store is busy, damaged or full
    │   └── ServeError        the server could not start, or does not answer
    └── InternalError         our bug; a log file is named                       exit 3
"""

from __future__ import annotations


class TrtspecError(Exception):
    """Base of every error we raise on purpose.

    ``code`` is a stable slug for programs; ``where`` a dotted spec path, a file or a field; ``line`` and ``column``
    count from 1; ``hint`` says what to do.
    """

    exit_code = 1
    default_code = "error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        where: str | None = None,
        line: int | None = None,
        column: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.where = where
        self.line = line
        self.column = column
        self.hint = hint

    def to_dict(self) -> dict[str, object]:
        """The ``error`` object of ``--json`` output."""
        return {
            "code": self.code,
            "where": self.where,
            "line": self.line,
            "column": self.column,
            "message": self.message,
            "hint": self.hint,
        }


class UserError(TrtspecError):
    default_code = "user_error"


class SpecError(UserError):
    default_code = "spec"


class SourceError(UserError):
    default_code = "source"


class CheckpointError(UserError):
    default_code = "checkpoint"


class RequestError(UserError):
    """One request is wrong; the others are not touched. ``field`` names the field."""

    default_code = "request"

    def __init__(self, field: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, where=field, hint=hint)
        self.field = field


class BuildError(UserError):
    default_code = "build"


class StoreError(UserError):
    default_code = "store"


class ServeError(UserError):
    default_code = "serve"


class InternalError(TrtspecError):
    exit_code = 3
    default_code = "internal"
