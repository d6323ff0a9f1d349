"""YAML text to its nodes, with bounds: one document, no deep nesting, no tags of other languages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from trtspec.errors import SpecError
from trtspec.methods.frozen import printable

_DEEPEST = 40  # a spec nests six levels; beyond this the parser's own stack would be at risk
_STANDARD = "tag:yaml.org,2002:"
_KNOWN_TAGS = frozenset(
    _STANDARD + name
    for name in ("null", "bool", "int", "float", "str", "timestamp", "merge", "value", "map", "seq", "binary")
)

_TOO_DEEP = f"nested more than {_DEEPEST} levels deep"
_SURROGATE = "half of a UTF-16 pair"
_UNCLOSED_QUOTE = "found unexpected end of stream"
_UNCLOSED = (_UNCLOSED_QUOTE, "'<stream end>'")
# what PyYAML says -> what we say and advise
_PROBLEMS = {
    "character '\\t'": ("a tab stands where YAML wants spaces", "indent with spaces"),
    "mapping values are not allowed": (
        "a second ': ' in one line, or a wrong indentation",
        'put a value that holds ": " in quotes; align keys of one level',
    ),
    "could not find expected ':'": ("a key without ':'", "write key: value"),
    _SURROGATE: ("\\uD800 to \\uDFFF are halves of a pair and no characters", "write the character itself"),
    _TOO_DEEP: (_TOO_DEEP, "a spec nests six levels: close the brackets"),
    "expected <block end>": ("the indentation does not fit the lines above", "align keys of one level"),
    "expected ',' or": ("a bracket is not closed, or a comma is missing", "close it, or add the comma"),
    "found undefined alias": ("an alias (*name) without its anchor (&name) above", "write the anchor first"),
    "found duplicate anchor": ("an anchor (&name) is written twice", "give each its own name"),
    "expected a single document": ("a second document starts here", "a spec is one document: remove the ---"),
    _UNCLOSED_QUOTE: ("a quote is not closed", "close it"),
    "cannot start any token": ("a character that cannot begin a value", "put the value in quotes"),
}


class _Composer(yaml.SafeLoader):
    """Composes nodes and stops before the recursion gets deep."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.level = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        self.level += 1
        if self.level > _DEEPEST:
            raise yaml.MarkedYAMLError(problem=_TOO_DEEP, problem_mark=self.get_mark())
        try:
            return super().compose_node(parent, index)
        finally:
            self.level -= 1

    def compose_scalar_node(self, anchor: dict[Any, Node]) -> ScalarNode:
        node: ScalarNode = super().compose_scalar_node(anchor)
        if any("\ud800" <= letter <= "\udfff" for letter in node.value):
            raise yaml.MarkedYAMLError(problem=_SURROGATE, problem_mark=node.start_mark)
        return node


def compose(text: str, name: str) -> MappingNode:
    """The document's mapping. Raises SpecError with the position of the first fault."""
    try:
        loader = _Composer(text)  # the reader looks for unprintable characters here already
        root = loader.get_single_node()
    except yaml.reader.ReaderError as error:
        raise _unprintable(error, text, name) from error
    except yaml.MarkedYAMLError as error:
        raise _ill_formed(error, name) from error
    if root is None:
        raise SpecError(
            f"{name} is empty", code="empty", where=name, line=1, column=1, hint="trtspec init prints a commented spec"
        )
    if not isinstance(root, MappingNode):
        raise SpecError(
            f"the spec must be keys with values, not {described(root)}",
            code="not_a_mapping",
            where=name,
            **_at(root),
            hint="start with name: and target:",
        )
    return root


def _at(node: Node) -> dict[str, int]:
    return {"line": node.start_mark.line + 1, "column": node.start_mark.column + 1}


def _unprintable(error: yaml.reader.ReaderError, text: str, name: str) -> SpecError:
    before = text[: error.position]
    return SpecError(
        f"an unprintable character, U+{ord(text[error.position]):04X}",
        code="yaml",
        where=name,
        line=before.count("\n") + 1,
        column=len(before.rsplit("\n", 1)[-1]) + 1,
        hint="remove it",
    )


def _ill_formed(error: yaml.MarkedYAMLError, name: str) -> SpecError:
    problem = error.problem or "ill-formed YAML"
    whole = f"{error.context or ''} {problem}"
    known = next((said for theirs, said in _PROBLEMS.items() if theirs in whole), None)
    message, hint = known or (problem, "see the line for what does not fit YAML's rules")
    opened = any(sign in whole for sign in _UNCLOSED)  # then the file's end, where it was noticed, tells nothing
    mark = (error.context_mark if opened else None) or error.problem_mark or error.context_mark
    return SpecError(
        f"not YAML: {message}",
        code="yaml",
        where=name,
        line=mark.line + 1 if mark else None,
        column=mark.column + 1 if mark else None,
        hint=hint,
    )


def described(node: Node) -> str:
    """What was written, for a message: a scalar's text, in quotes where it was, or what kind of thing it is."""
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, SequenceNode):
        return "a list"
    if is_null(node):
        return "empty"
    text = printable(str(node.value))
    return text if is_plain(node) else f'"{text}"'


def is_plain(node: Node) -> bool:
    """Whether a scalar was written without quotes."""
    return isinstance(node, ScalarNode) and node.style is None


def is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.tag == _STANDARD + "null"


def kind(node: Node) -> str:
    """YAML's own name of the type: str, int, float, bool, null, map, seq ..."""
    return str(node.tag).removeprefix(_STANDARD)


def foreign_tag(node: Node) -> str | None:
    """The tag as written, where it is not one of YAML's plain types (``!!python/name:os.system``)."""
    if node.tag in _KNOWN_TAGS and kind(node) != "binary":
        return None
    return "!!" + kind(node) if str(node.tag).startswith(_STANDARD) else str(node.tag)


@dataclass(frozen=True)
class Pair:
    """One ``key: value`` of a mapping; ``merged`` when it came through ``<<``."""

    key: Node
    value: Node
    merged: bool = False

    @property
    def name(self) -> str | None:
        """The key's text; None when the key is no word."""
        return str(self.key.value) if isinstance(self.key, ScalarNode) else None


class MergeError(Exception):
    """A ``<<`` that merges no mapping, or itself. ``node`` is what it names."""

    def __init__(self, node: Node, message: str) -> None:
        super().__init__(message)
        self.node = node


def own_pairs(node: MappingNode) -> list[Pair]:
    """The written pairs in order, without what ``<<`` adds."""
    return [Pair(key, value) for key, value in node.value if not _is_merge(key)]


def pairs(node: MappingNode) -> list[Pair]:
    """The written pairs in order, then those merged through ``<<`` that are not written here. Raises MergeError."""
    own = own_pairs(node)
    written = {pair.name for pair in own}
    merged: dict[str, Pair] = {}
    for source in _merged_mappings(node):
        for key, value in source.value:
            pair = Pair(key, value, merged=True)
            if not _is_merge(key) and pair.name is not None and pair.name not in written:
                merged.setdefault(pair.name, pair)
    return [*own, *merged.values()]


def _is_merge(key: Node) -> bool:
    return bool(key.tag == _STANDARD + "merge")


def _merged_mappings(node: MappingNode) -> list[MappingNode]:
    """Every mapping that ``<<`` reaches, nearest first, each once: a chain of merges cannot grow beyond its text."""
    reached: dict[int, MappingNode] = {}
    waiting = [(key, value) for key, value in node.value if _is_merge(key)]
    while waiting:
        key, value = waiting.pop(0)
        if isinstance(value, SequenceNode):
            waiting[:0] = [(key, item) for item in value.value if not isinstance(item, SequenceNode)]
            continue
        if not isinstance(value, MappingNode):
            raise MergeError(key, f"<< merges mappings, not {described(value)}")
        if value is node:
            raise MergeError(key, "<< merges a mapping into itself")
        if id(value) not in reached:
            reached[id(value)] = value
            waiting.extend((inner, source) for inner, source in value.value if _is_merge(inner))
    return list(reached.values())
