"""YAML nodes to plain values, led by the type each place wants, so that ``off`` is a word where a word is wanted.

Every fault is kept with its place; what could not be read is left out.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from trtspec.errors import SpecError
from trtspec.methods import LATER, METHODS
from trtspec.methods.base import Method
from trtspec.methods.frozen import Frozen
from trtspec.spec.keys import advise, nearest
from trtspec.spec.nodes import MergeError, Pair, described, foreign_tag, is_null, is_plain, kind, own_pairs, pairs

Mark = tuple[int, int]
_MOST_NODES = 20_000  # aliases may repeat a node, but not beyond what a hand writes
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_SWITCHES = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_SYNONYMS = {
    "off": "never",
    "no": "never",
    "on": "always",
    "yes": "always",
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "half": "float16",
    "float": "float32",
}
_WORD_SWITCHES = frozenset({"yes", "no", "on", "off"})


class _Unread(Exception):
    """A value that was refused; its error is already kept."""


class Reader:
    """Reads one document. ``errors`` are the faults, ``marks`` where each dotted path was written (from 1)."""

    def __init__(self) -> None:
        self.errors: list[SpecError] = []
        self.marks: dict[str, Mark] = {}
        self.meant: set[str] = set()  # legal paths that a misspelt key was most likely meant to be
        self._nodes = 0

    def read(self, root: MappingNode, model: type[Frozen]) -> dict[str, Any]:
        self.marks[""] = _mark(root)
        return self._model(root, model, "")

    # --- mappings

    def _model(self, node: MappingNode, model: type[BaseModel], where: str) -> dict[str, Any]:
        return self._fields(self._pairs(node, where), model, where)

    def _fields(self, written: Mapping[str, Pair], model: type[BaseModel], where: str) -> dict[str, Any]:
        fields = model.model_fields
        found: dict[str, Any] = {}
        for key, pair in written.items():
            if key in fields:
                self._keep(found, key, pair, fields[key].annotation, _join(where, key))
            else:
                self._unknown_key(key, pair, where, fields, written)
        return found

    def _keep(self, found: dict[str, Any], key: str, pair: Pair, annotation: Any, where: str) -> None:
        self.marks[where] = _entry_mark(pair)
        try:
            found[key] = self._value(pair.value, annotation, where)
        except _Unread:
            return

    def _unknown_key(
        self, key: str, pair: Pair, where: str, legal: Mapping[str, Any], written: Mapping[str, Pair]
    ) -> None:
        advice = advise(key, where, legal, {name: _plain_number(other.value) for name, other in written.items()})
        if advice.meant is not None:
            self.meant.add(_join(where, advice.meant))
        self._note(advice.message, _join(where, key), _mark(pair.key), advice.hint, code="unknown_key")

    def _pairs(self, node: MappingNode, where: str) -> dict[str, Pair]:
        """Key -> pair, each key once; the faults of keys are kept."""
        try:
            everything = pairs(node)
        except MergeError as error:
            self._note(str(error), where, _mark(error.node), "write the keys out", code="yaml")
            everything = own_pairs(node)
        found: dict[str, Pair] = {}
        for pair in everything:
            name = pair.name
            if name is None:
                self._note(f"a key cannot be {described(pair.key)}", where, _mark(pair.key), "a key is one word")
            elif name in found:
                first = found[name].key.start_mark.line + 1
                message = f"the key {name} is written twice, first in line {first}"
                self._note(message, _join(where, name), _mark(pair.key), "remove one of them", code="duplicate_key")
            else:
                found[name] = pair
        return found

    def _method(self, node: MappingNode, where: str) -> dict[str, Any]:
        written = self._pairs(node, where)
        pair = written.get("method")
        legal = ", ".join(METHODS)
        if pair is None:
            raise self._refuse(f"{where} has no method", where, f"write method: and one of {legal}", "missing_key")
        place = _join(where, "method")
        self.marks[place] = _entry_mark(pair)
        name = self._word(pair.value, place)
        if name in METHODS:
            return self._fields(written, METHODS[name], where)
        if name in LATER:
            raise self._refuse(f"method {name} is not built yet", place, f"use one of {legal}", "unknown_method")
        near = nearest(name, METHODS)
        hint = f"did you mean {near}? " if near else ""
        raise self._refuse(f'there is no method "{name}"', place, f"{hint}methods: {legal}", "unknown_method")

    # --- values by the type that is wanted

    def _value(self, node: Node, annotation: Any, where: str) -> Any:
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            self._refuse(f"more than {_MOST_NODES} values", where, "do aliases (*name) repeat each other?", "yaml")
            raise self.errors[-1]  # nothing more is read
        tag = foreign_tag(node)
        if tag is not None:
            raise self._refuse(f"the tag {tag} is not read in a spec", where, "write the plain value", code="yaml")
        wanted = _members(annotation)
        if is_null(node) and type(None) in wanted:
            return None
        wanted = tuple(one for one in wanted if one is not type(None))
        if all(isinstance(one, type) and issubclass(one, Method) for one in wanted):
            return self._speculation(node, where)
        return self._one(node, wanted[0], where)

    def _one(self, node: Node, wanted: Any, where: str) -> Any:
        origin = get_origin(wanted)
        if isinstance(wanted, type) and issubclass(wanted, Frozen):
            return self._section(node, wanted, where)
        if origin is dict:
            return self._mapping_of(node, get_args(wanted)[1], where)
        if origin is list:
            return self._list_of(node, get_args(wanted)[0], where)
        if origin is Literal:
            return self._choice(node, get_args(wanted), where)
        return {bool: self._switch, int: self._whole, float: self._number, str: self._text}[wanted](node, where)

    def _section(self, node: Node, wanted: type[Frozen], where: str) -> Any:
        if is_null(node):
            return {}
        if isinstance(node, ScalarNode) and wanted.shorthand is not None:
            return self._text(node, where)
        if not isinstance(node, MappingNode):
            key = _key_for(node, wanted)
            hint = f"its keys are {', '.join(wanted.model_fields)}"
            hint = hint if key is None else f"write {last_key(where)}: {{{key}: {described(node)}}}"
            raise self._mistyped(node, where, "a mapping of keys", hint)
        return self._model(node, wanted, where)

    def _speculation(self, node: Node, where: str) -> Any:
        if is_null(node):
            return {"method": "none"}
        if isinstance(node, MappingNode):
            return self._method(node, where)
        hint = f"write {where}: {{method: NAME}}, with NAME one of {', '.join(METHODS)}"
        if isinstance(node, ScalarNode):
            word = "none" if str(node.value).lower() in ("off", "no", "false", "never") else str(node.value)
            if word in METHODS:
                hint = f"write {where}: {{method: {word}}}"
        raise self._mistyped(node, where, "a mapping with the key method", hint)

    def _mapping_of(self, node: Node, wanted: Any, where: str) -> dict[str, Any]:
        if is_null(node):
            return {}
        if not isinstance(node, MappingNode):
            raise self._mistyped(node, where, "a mapping of names to settings", "write name: {...}, one in a line")
        found: dict[str, Any] = {}
        for key, pair in self._pairs(node, where).items():
            self._keep(found, key, pair, wanted, _join(where, key))
        return found

    def _list_of(self, node: Node, wanted: Any, where: str) -> list[Any]:
        if not isinstance(node, SequenceNode):
            raise self._mistyped(node, where, "a list", "write [..., ...], or a line with - for each")
        found = []
        for index, item in enumerate(node.value):
            place = _join(where, str(index))
            self.marks[place] = _mark(item)
            try:
                found.append(self._value(item, wanted, place))
            except _Unread:
                continue
        return found

    def _choice(self, node: Node, choices: tuple[Any, ...], where: str) -> Any:
        value = self._whole(node, where) if isinstance(choices[0], int) else self._word(node, where)
        if value in choices:
            return value
        near = _SYNONYMS.get(str(value).lower()) or nearest(str(value), map(str, choices))
        hint = (
            f"did you mean {near}?"
            if near in [str(choice) for choice in choices]
            else f"write one of {', '.join(map(str, choices))}"
        )
        key = last_key(where)
        raise self._refuse(f"{key} must be one of {', '.join(map(str, choices))}, not {described(node)}", where, hint)

    def _word(self, node: Node, where: str) -> str:
        if not isinstance(node, ScalarNode) or is_null(node):
            raise self._mistyped(node, where, "a word", "write one word")
        return str(node.value)

    def _text(self, node: Node, where: str) -> str:
        """A text. What YAML reads as another type needs quotes, but for yes, no, on, off and dates."""
        text = self._word(node, where)
        if not is_plain(node) or kind(node) in ("str", "timestamp") or text.lower() in _WORD_SWITCHES:
            return text
        names = {"int": "a number", "float": "a number", "bool": "true or false"}
        raise self._refuse(
            f"{last_key(where)} must be a text, and YAML reads {text} as {names.get(kind(node), kind(node))}",
            where,
            f'put it in quotes: "{text}"',
            "wrong_type",
        )

    def _switch(self, node: Node, where: str) -> bool:
        if isinstance(node, ScalarNode) and is_plain(node) and str(node.value).lower() in _SWITCHES:
            return _SWITCHES[str(node.value).lower()]
        raise self._mistyped(node, where, "true or false", "write true or false, without quotes")

    def _whole(self, node: Node, where: str) -> int:
        text = str(node.value) if isinstance(node, ScalarNode) else ""
        if not (is_plain(node) and _WHOLE.fullmatch(text)):
            raise self._mistyped(node, where, "a whole number", _whole_hint(text))
        if len(text) > 18:
            raise self._refuse(f"{last_key(where)} is too large: {described(node)}", where, "write a smaller one")
        return int(text)

    def _number(self, node: Node, where: str) -> float:
        text = str(node.value) if isinstance(node, ScalarNode) else ""
        if not (is_plain(node) and _NUMBER.fullmatch(text)):
            raise self._mistyped(node, where, "a number", _number_hint(text))
        value = float(text)
        if not math.isfinite(value):
            raise self._refuse(f"{last_key(where)} is too large: {described(node)}", where, "write a smaller one")
        return value

    # --- faults

    def _mistyped(self, node: Node, where: str, wanted: str, hint: str) -> _Unread:
        return self._refuse(
            f"{last_key(where)} must be {wanted}, not {described(node)}", where, hint, code="wrong_type"
        )

    def _refuse(self, message: str, where: str, hint: str, code: str = "wrong_value") -> _Unread:
        self._note(message, where, self.marks[where], hint, code)
        return _Unread()

    def _note(self, message: str, where: str, mark: Mark, hint: str, code: str = "wrong_value") -> None:
        self.errors.append(
            SpecError(message, code=code, where=where or None, line=mark[0], column=mark[1], hint=hint or None)
        )


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def last_key(where: str) -> str:
    """The last key of a path, with the indices that follow it."""
    parts = where.split(".")
    last = max(index for index, part in enumerate(parts) if index == 0 or not part.isdigit())
    return ".".join(parts[last:])


def _mark(node: Node) -> Mark:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _entry_mark(pair: Pair) -> Mark:
    """Where a reader looks for an entry: at a value on the key's own line, else at the key."""
    key, value = pair.key, pair.value
    beside = value.start_mark.line == key.end_mark.line and value.start_mark.column > key.start_mark.column
    return _mark(value if beside and isinstance(value, ScalarNode) and value.value else key)


def _members(annotation: Any) -> tuple[Any, ...]:
    """The types that an annotation allows, without what Annotated adds."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(member for part in get_args(annotation) for member in _members(part))
    return (annotation,)


def _key_for(node: Node, section: type[BaseModel]) -> str | None:
    """The key that a bare word in a section's place was most likely meant for."""
    if not isinstance(node, ScalarNode):
        return None
    if "model" in section.model_fields:
        return "model"
    choices = ((key, get_args(field.annotation)) for key, field in section.model_fields.items())
    return next((key for key, words in choices if node.value in words), None)


def _plain_number(node: Node) -> object:
    text = str(node.value) if isinstance(node, ScalarNode) else ""
    return int(text) if len(text) <= 18 and _WHOLE.fullmatch(text) else text


def _whole_hint(text: str) -> str:
    """Advice for a count that is written as something else: 1e3, 8.0, 1_000, "8"."""
    plain = text.replace("_", "").replace(",", "")
    if re.match("0[0-9]", plain):
        return "write it without the leading zero"
    if _NUMBER.fullmatch(plain) and len(plain) < 40 and math.isfinite(float(plain)) and float(plain).is_integer():
        return f"write {int(float(plain))}, in plain digits and without quotes"
    return "write it in plain digits, as 8192"


def _number_hint(text: str) -> str:
    percent = text.removesuffix("%").strip()
    if text.endswith("%") and _NUMBER.fullmatch(percent):
        return f"write {float(percent) / 100:g}"
    if _NUMBER.fullmatch(text):
        return f"write {text}, without quotes"
    return "write a plain number, as 0.4"
