"""One request as the user wrote it: parsed once at the door, strictly, then only types."""

from __future__ import annotations

import difflib
import json
import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trtspec.errors import RequestError

SpeculationWish = Literal["auto", "on", "off"]

MAX_SEED = 2**64 - 1
MAX_COUNT = 2**31 - 1  # engines count tokens in 32 bits
MAX_WORDS = 64  # entries of stop and of bad_words
MAX_WORD_LENGTH = 1024  # characters of one entry
MAX_NAME_LENGTH = 256  # characters of an id or a route
SOURCES = ("prompt", "messages", "input_ids")
ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True)
class Message:
    role: str
    content: str

    def to_dict(self) -> dict[str, str]:
        return {"role": self.role, "content": self.content}


@dataclass(frozen=True)
class Request:
    """Exactly one of ``prompt``, ``messages`` and ``input_ids`` is set. ``top_k`` 0 is off; -1 has become 0."""

    id: str
    seed: int
    prompt: str | None = None
    messages: tuple[Message, ...] | None = None
    input_ids: tuple[int, ...] | None = None
    max_tokens: int = 128
    min_tokens: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    stop: tuple[str, ...] = ()
    bad_words: tuple[str, ...] = ()
    ignore_eos: bool = False
    end_id: tuple[int, ...] | None = None  # replaces the model's own end ids
    return_log_probs: bool = False
    route: str | None = None
    speculation: SpeculationWish = "auto"
    max_draft_len: int | None = None

    @property
    def source(self) -> str:
        """The field that holds the prompt."""
        return next(name for name in SOURCES if getattr(self, name) is not None)


def draw_seed() -> int:
    return secrets.randbits(64)


def parse_request(data: Mapping[str, Any], default_id: str, seed: Callable[[], int] = draw_seed) -> Request:
    """A JSON object to a Request; null means "not given". Raises RequestError naming field, range and value."""
    if not isinstance(data, Mapping):
        raise RequestError("request", f"a request must be a JSON object, not {shown(data)}")
    given = {name: value for name, value in data.items() if value is not None}
    _refuse_unknown(given)
    _refuse_beams(given)
    values = {name: PARSERS[name](name, value) for name, value in given.items() if name in PARSERS}
    _exactly_one_source(values)
    request = Request(**{"id": default_id, **values, "seed": values["seed"] if "seed" in values else seed()})
    if request.min_tokens > request.max_tokens:
        raise RequestError(
            "min_tokens", f"min_tokens must be at most max_tokens ({request.max_tokens}), not {request.min_tokens}"
        )
    return request


def shown(value: object) -> str:
    """A value as the user wrote it (JSON), shortened."""
    if isinstance(value, int) and value.bit_length() > 256:  # Python refuses to print very long integers
        return f"an integer of {value.bit_length()} bits"
    try:
        text = json.dumps(value, ensure_ascii=True)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


# -- what may not be there ---------------------------------------------------------------------------------------------


def _refuse_unknown(given: Mapping[str, Any]) -> None:
    legal = [*PARSERS, *BEAM_FIELDS]
    for name in given:
        if name in legal:
            continue
        near = difflib.get_close_matches(str(name), legal, n=1)
        hint = f"did you mean {near[0]}?" if near else "legal fields: " + ", ".join(sorted(legal))
        raise RequestError(str(name), f"unknown field {shown(name)}; {hint}", hint=hint)


def _refuse_beams(given: Mapping[str, Any]) -> None:
    for name in BEAM_FIELDS:
        if name in given and _integer(name, given[name]) != 1:
            raise RequestError(
                name, f"{name} must be 1, not {shown(given[name])}: beam search and several answers are not supported"
            )


def _exactly_one_source(values: Mapping[str, Any]) -> None:
    present = [name for name in SOURCES if name in values]
    if len(present) == 1:
        return
    found = " and ".join(present) if present else "none of them"
    raise RequestError(
        present[1] if present else "prompt", f"give exactly one of prompt, messages and input_ids; found {found}"
    )


# -- one parser per kind of value -----------------------------------------------------------------------------------

Parser = Callable[[str, Any], Any]


def _integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestError(name, f"{name} must be an integer, not {shown(value)}")
    return value


def integer(low: int, high: int, note: str = "") -> Parser:
    def parse(name: str, value: Any) -> int:
        number = _integer(name, value)
        if not low <= number <= high:
            raise RequestError(name, f"{name} must be from {low} to {high}{note}, not {shown(number)}")
        return number

    return parse


def number(accept: Callable[[float], bool], legal: str) -> Parser:
    def parse(name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise RequestError(name, f"{name} must be a number, {legal}, not {shown(value)}")
        if isinstance(value, int) and abs(value) > 2**63:
            raise RequestError(name, f"{name} must be {legal}, not {shown(value)}")
        if not math.isfinite(value) or not accept(float(value)):
            raise RequestError(name, f"{name} must be {legal}, not {shown(value)}")
        return float(value)

    return parse


def boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise RequestError(name, f"{name} must be true or false, not {shown(value)}")
    return value


def text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise RequestError(name, f"{name} must be a string, not {shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise RequestError(name, f"{name} holds half a surrogate pair at character {error.start}: not text") from None
    return value


def short_name(name: str, value: Any) -> str:
    if not 1 <= len(text(name, value)) <= MAX_NAME_LENGTH:
        raise RequestError(name, f"{name} must have from 1 to {MAX_NAME_LENGTH} characters, not {len(value)}")
    return str(value)


def choice(*words: str) -> Parser:
    def parse(name: str, value: Any) -> str:
        if value not in words or not isinstance(value, str):
            raise RequestError(name, f"{name} must be one of {', '.join(words)}, not {shown(value)}")
        return value

    return parse


def words(name: str, value: Any) -> tuple[str, ...]:
    """A string or a list of non-empty strings."""
    entries = [value] if isinstance(value, str) else value
    if not isinstance(entries, (list, tuple)):
        raise RequestError(name, f"{name} must be a string or a list of strings, not {shown(value)}")
    if len(entries) > MAX_WORDS:
        raise RequestError(name, f"{name} must have at most {MAX_WORDS} entries, not {len(entries)}")
    return tuple(_word(name, entry) for entry in entries)


def _word(name: str, entry: Any) -> str:
    if not isinstance(entry, str) or not 1 <= len(entry) <= MAX_WORD_LENGTH:
        raise RequestError(
            name, f"every entry of {name} must be a string of 1 to {MAX_WORD_LENGTH} characters, not {shown(entry)}"
        )
    return text(name, entry)


def token_ids(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)):
        raise RequestError(name, f"{name} must be a list of token ids, not {shown(value)}")
    if not value:
        raise RequestError(name, f"{name} must hold at least one token id, not []")
    for position, entry in enumerate(value):
        if isinstance(entry, bool) or not isinstance(entry, int) or not 0 <= entry <= MAX_COUNT:
            raise RequestError(name, f"{name}[{position}] must be a token id of 0 or more, not {shown(entry)}")
    return tuple(value)


def end_ids(name: str, value: Any) -> tuple[int, ...]:
    return token_ids(name, value if isinstance(value, (list, tuple)) else [value])


def messages(name: str, value: Any) -> tuple[Message, ...]:
    if not isinstance(value, (list, tuple)) or not value:
        raise RequestError(name, f"{name} must be a list of at least one {{role, content}}, not {shown(value)}")
    return tuple(_message(f"{name}[{position}]", name, entry) for position, entry in enumerate(value))


def _message(where: str, name: str, entry: Any) -> Message:
    if not isinstance(entry, Mapping):
        raise RequestError(name, f"{where} must be an object with role and content, not {shown(entry)}")
    for key in entry:
        if key not in ("role", "content"):
            raise RequestError(name, f"{where} has the unknown key {shown(key)}; legal keys: role, content")
    for key in ("role", "content"):
        if key not in entry:
            raise RequestError(name, f"{where} lacks {key}")
        if not isinstance(entry[key], str):
            raise RequestError(name, f"{where}.{key} must be a string, not {shown(entry[key])}")
    if entry["role"] not in ROLES:
        raise RequestError(name, f"{where}.role must be one of {', '.join(ROLES)}, not {shown(entry['role'])}")
    return Message(entry["role"], text(name, entry["content"]))


def top_k(name: str, value: Any) -> int:
    number = integer(-1, MAX_COUNT, " (-1 and 0 are off)")(name, value)
    return max(0, int(number))


BEAM_FIELDS = ("beam_width", "best_of", "n")
PARSERS: dict[str, Parser] = {
    "id": short_name,
    "prompt": text,
    "messages": messages,
    "input_ids": token_ids,
    "max_tokens": integer(1, MAX_COUNT),
    "min_tokens": integer(0, MAX_COUNT),
    "temperature": number(lambda t: t == 0 or 1e-4 <= t <= 1e4, "0 (greedy) or from 0.0001 to 10000"),
    "top_k": top_k,
    "top_p": number(lambda p: 0 < p <= 1, "above 0 and at most 1"),
    "min_p": number(lambda p: 0 <= p < 1, "at least 0 and below 1"),
    "repetition_penalty": number(lambda p: 0.01 <= p <= 100, "from 0.01 to 100 (1 is off)"),
    "presence_penalty": number(lambda p: -2 <= p <= 2, "from -2 to 2"),
    "frequency_penalty": number(lambda p: -2 <= p <= 2, "from -2 to 2"),
    "seed": integer(0, MAX_SEED),
    "stop": words,
    "bad_words": words,
    "ignore_eos": boolean,
    "end_id": end_ids,
    "return_log_probs": boolean,
    "route": short_name,
    "speculation": choice("auto", "on", "off"),
    "max_draft_len": integer(0, MAX_COUNT),
}
