"""A Triton request's tensors and parameters become the JSON object that ``front.request`` parses. Pure.

Out come plain Python values under the request's own field names; ranges are checked there, not here.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trtspec.errors import RequestError
from trtspec.repository.interface import FRONT_INPUTS

Tensors = Mapping[str, np.ndarray[Any, Any]]

# Triton's name -> the request's field, where they differ.
FIELDS: Mapping[str, str] = {
    "text_input": "prompt",
    "stop_words": "stop",
    "random_seed": "seed",
    "num_draft_tokens": "max_draft_len",
    "num_return_sequences": "n",
}
LISTS = {"input_ids", "stop_words", "bad_words"}
OURS = {"stream", "exclude_input_in_output", "command", "stop", "pad_id"}  # the front's own, not the request's
IGNORED = {"return_perf_metrics", "return_num_input_tokens", "return_num_output_tokens"}  # these are always returned
# What this front cannot do, and the values that ask for nothing.
IDENTITIES: Mapping[str, tuple[Any, ...]] = {
    "length_penalty": (0.0, 1.0),
    "return_context_logits": (False,),
    "return_generation_logits": (False,),
    "use_draft_logits": (False,),
    "decoder_text_input": ("",),
    "embedding_bias_words": ("",),
    "embedding_bias_weights": (0.0,),
    "prompt_embedding_table": (),
    "prompt_table_extra_id": (0,),
    "prompt_vocab_size": (0,),
    "lora_task_id": (0,),
    "lora_weights": (),
    "lora_config": (),
    "guided_decoding_guide_type": ("",),
    "guided_decoding_guide": ("",),
}
COMMANDS = ("status", "probe")  # what the server does; one token through the engine, counted nowhere
LEGAL = [tensor.name for tensor in FRONT_INPUTS]


@dataclass(frozen=True)
class Asked:
    """``fields`` are for ``parse_request``; the rest steers the front itself."""

    fields: Mapping[str, Any]
    given: frozenset[str] = frozenset()  # the names of the tensors that say something
    stream: bool = False
    echo: bool = False  # the prompt's text goes before the answer's
    stop: bool = False  # cancel the request of this id
    command: str | None = None


def read_inputs(
    tensors: Tensors, parameters: Mapping[str, Any], request_id: str, relayed_id: str | None = None
) -> Asked:
    """Any parameter but a repeated id is an unknown field. ``relayed_id``: the id the relay's client gave."""
    refuse_unknown(parameters, request_id)
    values = {name: _value(name, array) for name, array in tensors.items()}
    values = {name: value for name, value in values.items() if value is not None}
    for name in IDENTITIES:
        if name in values:
            _refuse_unsupported(name, values.pop(name))
    _refuse_both(values, "seed", "random_seed")
    _refuse_both(values, "max_draft_len", "num_draft_tokens")
    fields = {FIELDS.get(name, name): value for name, value in values.items() if name not in OURS | IGNORED}
    if "messages" in fields:
        fields["messages"] = _messages(fields["messages"])
    if relayed_id:
        fields["id"] = relayed_id
    return Asked(
        fields=fields,
        given=frozenset(values),
        stream=values.get("stream", False),
        echo=not values.get("exclude_input_in_output", True),
        stop=values.get("stop", False),
        command=_command(values.get("command")),
    )


def in_tensor_words(error: RequestError, given: Collection[str]) -> RequestError:
    """The same error under the names of the tensors that were ``given``: ``prompt`` is ``text_input`` here, ``n`` came
    as ``num_return_sequences``."""
    message = error.message
    if message.startswith("give exactly one of prompt"):
        message = re.sub(r"\bprompt\b", "text_input", message)
    told = [name for name, field in FIELDS.items() if field == error.field and name in given]
    name = "text_input" if error.field == "prompt" else told[0] if told else error.field
    message = re.sub(rf"^(every entry of )?{re.escape(error.field)}\b", rf"\g<1>{name}", message)
    return RequestError(name, message, hint=error.hint)


def refuse_unknown(given: Mapping[str, Any], request_id: str) -> None:
    """``given`` are the request's parameters. Raises RequestError for the first that is no repeated id."""
    for name, value in given.items():
        if name == "id" and value == request_id:
            continue
        near = difflib.get_close_matches(name, LEGAL, n=1)
        hint = f"did you mean {near[0]}?" if near else "legal fields: " + ", ".join(sorted(LEGAL))
        raise RequestError(name, f"unknown field {json.dumps(name)}; {hint}", hint=hint)


def _value(name: str, array: np.ndarray[Any, Any]) -> Any:
    """A list for a list tensor, a scalar for others; None for an empty one. The batch dimension is dropped."""
    entries = [_entry(name, entry) for entry in array.ravel()]
    if name in LISTS:
        return [entry for entry in entries if entry != ""] if name.endswith("_words") else entries
    if len(entries) > 1 and name not in IDENTITIES:
        raise RequestError(name, f"{name} takes one value, not {len(entries)}")
    if len(entries) > 1:
        return entries
    return entries[0] if entries else None


def _entry(name: str, entry: Any) -> Any:
    if isinstance(entry, (bytes, str)):
        return _text(name, entry)
    if isinstance(entry, np.floating):
        return float(str(entry))  # the shortest number that is this one: 0.7, not 0.699999988
    return entry.item()


def _text(name: str, data: bytes | str) -> str:
    if isinstance(data, str):
        return data
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RequestError(name, f"{name} is not UTF-8: byte {error.start} is 0x{data[error.start]:02x}") from None


def _messages(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequestError("messages", f"messages must be JSON text, a list of {{role, content}}: {error}") from None


def _command(value: str | None) -> str | None:
    if value is not None and value not in COMMANDS:
        raise RequestError("command", f"command must be one of {', '.join(COMMANDS)}, not {json.dumps(value)}")
    return value


def _refuse_unsupported(name: str, value: Any) -> None:
    legal = IDENTITIES[name]
    if not all(entry in legal for entry in (value if isinstance(value, list) else [value])):
        only = " or ".join(json.dumps(entry) for entry in legal) or "an empty tensor"
        raise RequestError(name, f"{name} is not supported by this engine: only {only} is accepted")


def _refuse_both(values: Mapping[str, Any], name: str, alias: str) -> None:
    if name in values and alias in values:
        raise RequestError(alias, f"{alias} is another name of {name}: give one of them, not both")
