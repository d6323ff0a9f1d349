"""The spec's JSON Schema (draft 2020-12), for editors. Rules over several keys are not in it."""

from __future__ import annotations

from typing import Any

from trtspec.methods import METHODS
from trtspec.methods.model import Head
from trtspec.spec.model import Spec

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def spec_schema() -> dict[str, Any]:
    schema = Spec.model_json_schema(mode="validation")
    definitions = schema["$defs"]
    for kind in METHODS.values():
        _require_method(definitions[kind.__name__])
    definitions[Head.__name__] = _with_shorthand(definitions[Head.__name__])
    for part in (schema, *definitions.values()):
        _untitle(part)
    return {"$schema": DIALECT, **schema, "title": "trtspec spec, version 1"}


def _require_method(definition: dict[str, Any]) -> None:
    """In Python the tag has a default; in a file it chooses the method, so it must be written."""
    definition["required"] = ["method", *definition.get("required", [])]
    definition["properties"]["method"].pop("default")


def _with_shorthand(definition: dict[str, Any]) -> dict[str, Any]:
    """``head: SOURCE`` for ``head: {model: SOURCE}``."""
    return {"description": definition.pop("description"), "anyOf": [{"type": "string"}, definition]}


def _untitle(part: dict[str, Any]) -> None:
    """Pydantic's titles repeat the keys."""
    part.pop("title", None)
    for branch in part.get("anyOf", ()):
        _untitle(branch)
    for property_ in part.get("properties", {}).values():
        _untitle(property_)
