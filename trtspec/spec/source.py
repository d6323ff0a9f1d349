"""The spec file's text: read whole, of a sane size, in UTF-8."""

from __future__ import annotations

from pathlib import Path

from trtspec.errors import SpecError

LIMIT = 1 << 20  # bytes; a spec is a page or two


def read_text(path: Path) -> str:
    """Raises SpecError naming the path where there is no readable text."""
    data = _read_bytes(path)
    if len(data) > LIMIT:
        raise _refused(path, f"{path} is larger than {LIMIT} bytes", "a spec is a page or two: is this the right file?")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = _position(data[: error.start])
        raise SpecError(
            f"{path} is not UTF-8 text: byte 0x{data[error.start]:02x}",
            code="not_text",
            where=str(path),
            line=line,
            column=column,
            hint="save the file as UTF-8",
        ) from error
    return text


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(LIMIT + 1)
    except FileNotFoundError as error:
        hint = "trtspec init -o FILE writes a commented one"
        raise _refused(path, f"{path} does not exist", hint, code="missing_file") from error
    except IsADirectoryError as error:
        raise _refused(path, f"{path} is a folder", "name the YAML file in it") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _refused(path, f"{path} cannot be read: {reason}", "name a YAML file you may read") from error


def _refused(path: Path, message: str, hint: str, code: str = "unreadable_file") -> SpecError:
    return SpecError(message, code=code, where=str(path), hint=hint)


def _position(before: bytes) -> tuple[int, int]:
    last = before.rsplit(b"\n", 1)[-1]
    return before.count(b"\n") + 1, len(last.decode("utf-8", "replace")) + 1
