from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from trtspec.cli.schema import command
from trtspec.methods import METHODS
from trtspec.spec.keys import models_in
from trtspec.spec.model import Spec
from trtspec.spec.reference import markdown
from trtspec.spec.schema import DIALECT, spec_schema
from trtspec.spec.template import TEMPLATES, template

DOCS = Path(__file__).parents[2] / "docs" / "spec.md"


def conforms(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    """The part of JSON Schema that ours uses."""
    if "$ref" in schema:
        return conforms(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root)
    for word in ("anyOf", "oneOf"):
        if word in schema and not any(conforms(value, branch, root) for branch in schema[word]):
            return False
    if ("enum" in schema and value not in schema["enum"]) or ("const" in schema and value != schema["const"]):
        return False
    if "type" in schema and not _has_type(value, schema["type"]):
        return False
    if isinstance(value, dict):
        return _object_conforms(value, schema, root)
    if isinstance(value, list):
        items = schema.get("items", {})
        return len(value) >= schema.get("minItems", 0) and all(conforms(item, items, root) for item in value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))
    return True


def _object_conforms(value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any]) -> bool:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    if any(key not in value for key in schema.get("required", ())):
        return False
    for key, inner in value.items():
        wanted = properties.get(key, others)
        if wanted is False or (isinstance(wanted, dict) and not conforms(inner, wanted, root)):
            return False
    return True


def _has_type(value: Any, kind: str) -> bool:
    kinds: dict[str, Any] = {"object": dict, "array": list, "string": str, "null": type(None), "boolean": bool}
    if kind in ("integer", "number"):
        return isinstance(value, int if kind == "integer" else int | float) and not isinstance(value, bool)
    return isinstance(value, kinds[kind])


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_conforms(name: str) -> None:
    schema, document = spec_schema(), yaml.safe_load(template(name))
    assert conforms(document, schema, schema)
    if importlib.util.find_spec("jsonschema") is not None:
        importlib.import_module("jsonschema").Draft202012Validator(schema).validate(document)


@pytest.mark.parametrize(
    "change",
    [
        {"nane": "x"},
        {"name": 1},
        {"runtime": "cuda"},
        {"target": {}},
        {"speculation": {"method": "ngrams"}},
        {"speculation": {"max_draft_len": 4}},
        {"speculation": {"method": "ngram", "window_size": 7}},
        {"limits": {"max_batch_size": 0}},
        {"routes": {"code": {"kind": "poem"}}},
    ],
)
def test_what_is_wrong_does_not_conform(change: dict[str, Any]) -> None:
    schema = spec_schema()
    good = {"name": "demo", "target": {"model": "./m"}}
    assert conforms(good, schema, schema)
    assert not conforms({**good, **change}, schema, schema)


def test_a_head_may_be_a_word() -> None:
    schema = spec_schema()
    for head in ("./head", {"model": "./head"}):
        document = {"name": "a", "target": {"model": "./m"}, "speculation": {"method": "medusa", "head": head}}
        assert conforms(document, schema, schema)


def test_schema_is_printed_as_one_json_document() -> None:
    result = CliRunner().invoke(command, [])
    printed = json.loads(result.stdout)
    assert result.exit_code == 0
    assert printed["$schema"] == DIALECT
    assert printed["required"] == ["name", "target"]
    assert len(printed["properties"]["speculation"]["oneOf"]) == len(METHODS)


def keys_of(model: Any, path: str = "") -> Iterator[str]:
    for key, field in model.model_fields.items():
        yield f"{path}{key}"
        for inner in models_in(field.annotation):
            nested = "NAME." if key == "routes" else ""
            yield from keys_of(inner, f"{path}{key}.{nested}")


def test_every_key_has_a_description_for_editors() -> None:
    schema = spec_schema()
    for part in (schema, *schema["$defs"].values()):
        for key, wanted in part.get("properties", {}).items():
            assert key == "method" or wanted.get("description"), key


def test_the_reference_is_up_to_date() -> None:
    write = "python -c 'from trtspec.spec.reference import markdown; print(markdown(), end=\"\")' > docs/spec.md"
    assert DOCS.read_text(encoding="utf-8") == markdown(), write


def test_the_reference_has_every_key() -> None:
    text = DOCS.read_text(encoding="utf-8")
    drafts = ("speculation.draft.", "speculation.drafts.")
    missing = [key for key in keys_of(Spec) if f"`{key}`" not in text and not key.startswith(drafts)]
    assert missing == []
