"""What to say of a key that is not one of ours: its name here, where it belongs, what it resembles."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel

from trtspec.methods.frozen import printable
from trtspec.spec.model import Spec

_BEAMS = frozenset({"max_beam_width", "beam_width", "num_beams", "best_of", "beam_search", "use_beam_search"})
_OUTPUT = frozenset({"max_output_len", "max_new_tokens", "max_output_length", "max_tokens"})
_LOSSY = frozenset({"draft_acceptance_threshold", "acceptance_threshold", "posterior_threshold", "typical_acceptance"})

# what other programs say -> our key
_ELSEWHERE = {
    "num_speculative_tokens": "max_draft_len",
    "num_draft_tokens": "max_draft_len",
    "draft_len": "max_draft_len",
    "num_nextn_predict_layers": "layers",
    "eagle3_layers_to_capture": "layers",
    "max_matching_ngram_size": "max_ngram",
    "prompt_lookup_max": "max_ngram",
    "prompt_lookup_min": "min_ngram",
    "max_window_size": "window_size",
    "max_ngram_size": "ngram_size",
    "max_verification_set_size": "verification_set_size",
    "medusa_choices": "choices",
    "eagle_choices": "choices",
    "decoding_type": "method",
    "type": "method",
    "draft_model": "draft",
    "speculative_model": "draft",
    "speculative_model_dir": "draft",
    "path": "model",
    "model_dir": "model",
    "tp": "tensor_parallel",
    "tp_size": "tensor_parallel",
    "tensor_parallel_size": "tensor_parallel",
    "pp": "pipeline_parallel",
    "pp_size": "pipeline_parallel",
    "pipeline_parallel_size": "pipeline_parallel",
    "max_model_len": "max_seq_len",
    "max_num_seqs": "max_batch_size",
    "max_num_batched_tokens": "max_num_tokens",
    "free_gpu_memory_fraction": "free_fraction",
    "enable_block_reuse": "block_reuse",
}


@dataclass(frozen=True)
class Advice:
    """The message and hint of one unknown key."""

    message: str
    hint: str
    meant: str | None = None  # the legal key it was most likely meant to be


def nearest(word: str, words: Iterable[str]) -> str | None:
    found = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return found[0] if found else None


def advise(key: str, section: str, legal: Mapping[str, Any], siblings: Mapping[str, object]) -> Advice:
    """``section`` is the dotted path the key stands in ("" for the top); ``siblings`` the values beside it."""
    inside = f"{section}.{key}" if section else key
    if key in _BEAMS:
        return Advice(
            f"{inside}: beam search does not work with speculation",
            "remove it: each request has one beam; sample with temperature and top_p instead",
        )
    if key in _LOSSY:
        return Advice(f"{inside}: acceptance is lossless here, and has no threshold", "remove it")
    if key in _OUTPUT:
        return Advice(
            f"{inside} is not a key: the whole request is limited by limits.max_seq_len", _seq_len_hint(key, siblings)
        )
    place = f"of {section}" if section else "of a spec"
    meant = _ELSEWHERE[key] if _ELSEWHERE.get(key) in legal else nearest(key, legal)
    guess = f"did you mean {meant}? " if meant is not None else _home(key, section)
    return Advice(f"{printable(key)} is not a key {place}", f"{guess}legal keys: {', '.join(legal)}", meant)


def _seq_len_hint(key: str, siblings: Mapping[str, object]) -> str:
    output, prompt = siblings.get(key), siblings.get("max_input_len")
    if isinstance(output, int) and isinstance(prompt, int):
        return f"write limits.max_seq_len: {prompt + output} (max_input_len {prompt} + {key} {output}) and remove {key}"
    return f"write limits.max_seq_len, which is prompt and output together, and remove {key}"


def _home(key: str, section: str) -> str:
    """Where a key that is not legal here is."""
    ours = _ELSEWHERE.get(key, key)
    homes = [home or "the top level" for home in _homes().get(ours, ()) if home != section]
    return f"{ours} is a key of {' and '.join(homes[:3])}; " if homes else ""


@cache
def _homes() -> Mapping[str, tuple[str, ...]]:
    """Every key -> the dotted sections it is legal in."""
    found: dict[str, list[str]] = {}
    for section, key in _keys(Spec, ""):
        if section not in found.setdefault(key, []):
            found[key].append(section)
    return {key: tuple(sections) for key, sections in found.items()}


def _keys(model: type[BaseModel], section: str) -> Iterator[tuple[str, str]]:
    for key, field in model.model_fields.items():
        yield section, key
        for inner in models_in(field.annotation):
            yield from _keys(inner, f"{section}.{key}" if section else key)


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Every model that a field's annotation can hold, through unions, lists and mappings."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) is Annotated:
        yield from models_in(get_args(annotation)[0])
    else:
        for part in get_args(annotation):
            yield from models_in(part)
