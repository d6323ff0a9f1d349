"""What the build decided for a model: the JSON in its ``1/model.yaml``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def decided(args: Mapping[str, str]) -> dict[str, Any]:
    """``args`` are those of TritonPythonModel.initialize."""
    file = Path(args["model_repository"]) / args["model_version"] / "model.yaml"
    settings: dict[str, Any] = json.loads(file.read_text())
    return settings
