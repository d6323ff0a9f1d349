"""A JSON object read from a file of a model folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trtspec.errors import CheckpointError


def read_object(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{file.name} is missing in {file.parent}",
            where=str(file),
            hint="a model folder needs config.json, safetensors weights and tokenizer.json",
        ) from error
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error.strerror}", where=str(file)) from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file.name} is not JSON: {error}", where=str(file), hint="repair the file") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{file.name} is not a JSON object", where=str(file), hint="repair the file")
    return content


def read_object_if_there(file: Path) -> dict[str, Any]:
    """Empty when the file does not exist."""
    return read_object(file) if file.is_file() else {}
