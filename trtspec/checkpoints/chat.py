"""Chat templates, rendered as Hugging Face does, in a sandbox with a budget.

A template comes with a model, so it is foreign code: it sees immutable values and no attributes that lead out, and it
is ended when it executes too many lines, builds too long a text, or calls for a huge repetition.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, reduce, wraps
from types import FrameType
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from trtspec.errors import RequestError

MAX_CHARACTERS = 8 << 20
MAX_LINES = 2_000_000  # of compiled template code; about a second
MAX_WIDTH = 1 << 12  # of a field that padding fills
_FILE = "<chat template>"
_WIDENING_FILTERS = ("center", "indent", "format", "wordwrap", "batch", "slice", "round", "truncate")


class _BudgetError(Exception):
    """Not an error a template can catch: templates have no try."""


class _TemplateRefusalError(Exception):
    """The template called raise_exception."""


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool = True,
    special_tokens: Mapping[str, str] | None = None,
) -> str:
    """The chat as one text. Everything that goes wrong is a RequestError of the field ``messages``."""
    try:
        compiled = _compile(template)
        with _Budget():
            text: str = compiled.render(
                messages=messages,
                add_generation_prompt=add_generation_prompt,
                tools=None,
                documents=None,
                **(special_tokens or {}),
            )
            text.encode()  # half a surrogate pair is no text
    except _TemplateRefusalError as error:
        raise RequestError("messages", f"the chat template refuses these messages: {error}") from error
    except (_BudgetError, MemoryError, RecursionError, OverflowError) as error:
        raise RequestError(
            "messages",
            f"the chat template takes too much work or text: {error or type(error).__name__}",
            hint="send fewer or shorter messages, or send prompt instead",
        ) from error
    except Exception as error:  # whatever foreign template code raises
        raise RequestError(
            "messages",
            f"the chat template cannot render these messages: {type(error).__name__}: {error}",
            hint="a message is an object with role and content",
        ) from error
    return text


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        _check_operands(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        method = getattr(__obj, "__wrapped__", __obj)  # the sandbox wraps format
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            _check_string_method(owner, method.__name__, (*args, *kwargs.values()))
        return super().call(__context, __obj, *args, **kwargs)

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        pieces, length = [], 0
        for part in parts:
            length += len(part)
            _check_length(length)
            pieces.append(part)
        return "".join(pieces)


class _Generation(Extension):
    """``{% generation %}`` marks what the assistant said, for training; here it is just its body."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares a plain set)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Budget:
    """Counts the lines that template code executes in this thread."""

    def __enter__(self) -> None:
        self._lines = 0
        self._before = sys.gettrace()
        sys.settrace(self._enter)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename == _FILE else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        self._lines += 1
        if self._lines > MAX_LINES:
            raise _BudgetError(f"more than {MAX_LINES} lines were executed")
        return self._line


class _BoundedConcat(NodeTransformer):
    """``a ~ b`` becomes a sum, whose operands are checked."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:
        operands = [self._text(self.visit(operand)) for operand in node.nodes]
        return reduce(lambda left, right: nodes.Add(left, right, lineno=node.lineno), operands)

    @staticmethod
    def _text(operand: nodes.Expr) -> nodes.Expr:
        return nodes.Filter(operand, "string", [], [], None, None, lineno=operand.lineno)


@lru_cache(maxsize=16)
def _compile(template: str) -> jinja2.Template:
    _check_length(len(template))
    environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, LoopControlExtension])
    environment.filters |= {
        "tojson": _to_json,
        "join": _join,
        "replace": _replace,
        **{name: _narrow(environment.filters[name]) for name in _WIDENING_FILTERS},
    }
    environment.globals |= {"raise_exception": _raise, "strftime_now": _strftime_now}
    del environment.globals["lipsum"]
    tree = _BoundedConcat().visit(environment.parse(template))
    code = environment.compile(tree, filename=_FILE)
    return jinja2.Template.from_code(environment, code, environment.make_globals(None))


def _check_length(length: int) -> None:
    if length > MAX_CHARACTERS:
        raise _BudgetError(f"a text of more than {MAX_CHARACTERS} characters is built")


def _check_width(number: Any) -> None:
    if isinstance(number, int) and abs(number) > MAX_WIDTH:
        raise _BudgetError(f"{number} is beyond {MAX_WIDTH}")


def _check_operands(operator: str, left: Any, right: Any) -> None:
    if operator == "+" and _is_sized(left) and _is_sized(right):
        _check_length(len(left) + len(right))
    elif operator == "*":
        for many, times in ((left, right), (right, left)):
            if _is_sized(many) and isinstance(times, int):
                _check_length(len(many) * max(0, times))
            elif isinstance(many, int):
                _check_width(many.bit_length())
    elif operator == "**":
        _check_width(right)
        _check_width(left.bit_length() if isinstance(left, int) else 0)
    elif operator == "%" and isinstance(left, str):
        _check_format(left, right if isinstance(right, tuple) else (right,))


def _is_sized(value: Any) -> bool:
    return isinstance(value, str | list | tuple)


def _check_format(template: str, arguments: Iterable[Any]) -> None:
    """Widths stand in the template, or in arguments (``%*d``, ``{:{}}``)."""
    for number in re.findall(r"\d{4,}", template):
        _check_width(int(number[:9]))
    if "*" in template or re.search(r"{[^{}]*{", template):
        for argument in arguments:
            _check_width(argument)


def _check_string_method(owner: str, name: str, arguments: Sequence[Any]) -> None:
    if name in ("center", "ljust", "rjust", "zfill", "expandtabs"):
        for argument in arguments:
            _check_width(argument)
    elif name == "replace" and len(arguments) >= 2:
        _check_replacement(owner, str(arguments[0]), str(arguments[1]))
    elif name == "join" and arguments:
        parts = arguments[0] if _is_sized(arguments[0]) else ()
        _check_length(len(owner) * len(parts) + sum(map(len, map(str, parts))))
    elif name in ("format", "format_map"):
        _check_format(owner, arguments)


def _check_replacement(text: str, old: str, new: str) -> None:
    places = text.count(old)
    _check_length(len(text) + places * (len(new) - len(old)))


def _narrow(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that takes widths or counts, with a bound on them."""

    @wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            _check_width(value)
        return function(*args, **kwargs)

    return bounded


def _join(value: Iterable[Any], d: str = "", attribute: str | None = None) -> str:
    items = [getattr(item, "get", lambda _: "")(attribute) if attribute else item for item in value]
    texts = list(map(str, items))
    _check_length(len(d) * len(texts) + sum(map(len, texts)))
    return d.join(texts)


def _replace(value: Any, old: str, new: str, count: int | None = None) -> str:
    text = str(value)
    _check_replacement(text, old, new)
    return text.replace(old, new, -1 if count is None else count)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    _check_width(indent)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _raise(message: str) -> NoReturn:
    raise _TemplateRefusalError(message)


def _strftime_now(layout: str) -> str:
    _check_width(len(layout))
    return datetime.now().strftime(layout)
