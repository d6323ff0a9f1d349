"""What was decided becomes the files of a Triton model repository. Pure: nothing is read or written here."""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import trtspec
from trtspec.errors import BuildError
from trtspec.front.settings import FrontSettings
from trtspec.repository.interface import (
    ENGINE_INPUTS,
    ENGINE_OUTPUTS,
    FRONT_INPUTS,
    FRONT_OUTPUTS,
    engine_name,
    front_name,
    unary_name,
)
from trtspec.repository.pbtxt import config_pbtxt
from trtspec.repository.tree import Repository
from trtspec.runtime.options import EngineOptions
from trtspec.spec.model import Spec

HAND_OVER = '''"""Hands over to trtspec. Written by `trtspec build`; what was decided is in model.yaml beside it."""

import sys

# The stub of Triton's Python backend may ignore PYTHONPATH, so the environment is named here.
for place in {places!r}:
    if place not in sys.path:
        sys.path.insert(0, place)

from {module} import TritonPythonModel  # noqa: E402, F401
'''


def lay_out(
    spec: Spec,
    settings: FrontSettings,
    options: EngineOptions,
    tokenizer_dir: Path | None,
    python_path: Sequence[str] | None = None,
) -> Repository:
    """The front, its unary relay and the engine. ``python_path``: folders that hold trtspec and what it imports.

    Raises BuildError when there is no tokenizer: without it no model could start.
    """
    if tokenizer_dir is None or not str(tokenizer_dir):
        line, column = spec.position("target.tokenizer")
        raise BuildError(
            "target.tokenizer: there is no tokenizer folder to serve with",
            code="no_tokenizer",
            where="target.tokenizer",
            line=line,
            column=column,
            hint="name a folder that holds tokenizer.json, or build again",
        )
    places = list(installed_path() if python_path is None else python_path)
    tokenizer, name = str(tokenizer_dir), settings.name
    front = {"engine": engine_name(name), "tokenizer": tokenizer, "settings": settings.to_dict()}
    engine = {"tokenizer": tokenizer, "options": options.to_dict()}
    return Repository(
        {
            **_model(front_name(name), "front", places, front),
            **_model(unary_name(name), "unary", places, {"front": front_name(name)}),
            **_model(engine_name(name), "engine_model", places, engine),
        }
    )


def installed_path() -> tuple[str, ...]:
    """The folders of this very installation, last one first in the search."""
    return (sysconfig.get_paths()["purelib"], str(Path(trtspec.__file__).resolve().parents[1]))


def _model(name: str, module: str, places: list[str], decided: Mapping[str, Any]) -> dict[str, str]:
    internal = module == "engine_model"
    config = config_pbtxt(
        name,
        ENGINE_INPUTS if internal else FRONT_INPUTS,
        ENGINE_OUTPUTS if internal else FRONT_OUTPUTS,
        decoupled=module == "front",
        max_batch_size=0 if internal else 1,
    )
    return {
        f"{name}/config.pbtxt": config,
        f"{name}/1/model.py": HAND_OVER.format(places=places, module=f"trtspec.triton.{module}"),
        # JSON is YAML, and only the spec is read as YAML.
        f"{name}/1/model.yaml": json.dumps(decided, indent=2) + "\n",
    }
