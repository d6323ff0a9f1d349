"""The TensorRT-LLM releases we know: which Triton image carries each, and what each can serve. Every fact names its
source: a file of NVIDIA/TensorRT-LLM (or another repository, named) at a commit, or release notes.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from trtspec.errors import SpecError

Runtime = Literal["tensorrt", "pytorch", "reference"]
Generation = Literal["A", "B", "main"]  # spellings of the LLM API, see PYTORCH below

IMAGE = "nvcr.io/nvidia/tritonserver:{tag}-trtllm-python-py3"

_BUILD = "tensorrt_llm/commands/build.py @ 65f1d153, --speculative_decoding_mode"
_ARGS_A = "tensorrt_llm/llmapi/llm_args.py, generation of November 2025 (1.2.0 candidates)"
_ARGS_B = "tensorrt_llm/llmapi/llm_args.py @ 0a3bfe8a (between 1.2.0rc7 and 1.3.0rc0)"
_ARGS_MAIN = "tensorrt_llm/llmapi/llm_args.py @ 00043967"
_TB = "triton-inference-server/tensorrtllm_backend, submodule pin and dockerfile of branch "


@dataclass(frozen=True)
class Spelling:
    """What one release calls one method. ``verified`` is False where only neighbouring sources were read."""

    value: str | None
    source: str
    verified: bool = True
    why: str = ""


# method -> trtllm-build's --speculative_decoding_mode (None: the flag is left out)
TENSORRT: Mapping[str, Spelling] = {
    "none": Spelling(None, _BUILD),
    "draft_target": Spelling("draft_tokens_external", _BUILD),
    "ngram": Spelling("draft_tokens_external", _BUILD, why="the proposer is ours, the engine verifies"),
    "suffix": Spelling("draft_tokens_external", _BUILD, why="the proposer is ours, the engine verifies"),
    "lookahead": Spelling("lookahead_decoding", _BUILD),
    "medusa": Spelling("medusa", _BUILD),
    "eagle": Spelling("eagle", _BUILD),
    "redrafter": Spelling("explicit_draft_tokens", _BUILD),
}

_PYTORCH_B: Mapping[str, Spelling] = {
    "none": Spelling(None, _ARGS_B),
    "draft_target": Spelling("Draft_Target", _ARGS_B),
    "eagle3": Spelling("Eagle", _ARGS_B, why="accepted by every generation; Eagle3 is not in the oldest"),
    "mtp": Spelling("MTP", _ARGS_B),
    "ngram": Spelling("NGram", _ARGS_B),
}
# The one row for 1.2: its own llm_args.py was not read, it lies between generations A ("DraftTarget") and B
# ("Draft_Target"). Its release notes name the dynamic draft length, a field only B has, so B's spelling is emitted.
_DRAFT_TARGET_1_2 = Spelling(
    "Draft_Target",
    f"{_ARGS_A} says DraftTarget; {_ARGS_B} says Draft_Target",
    verified=False,
    why="the 1.2 release notes name dynamic draft length, which only the later generation has",
)
# method -> decoding_type of the LLM API, per generation (none: no speculative config)
PYTORCH: Mapping[Generation, Mapping[str, Spelling]] = {
    "A": {},
    "B": _PYTORCH_B,
    "main": {
        "none": Spelling(None, _ARGS_MAIN),
        "draft_target": Spelling("Draft_Target", _ARGS_MAIN),
        "eagle3": Spelling("Eagle3", _ARGS_MAIN),
        "mtp": Spelling("MTP", _ARGS_MAIN),
        "ngram": Spelling("NGram", _ARGS_MAIN),
        "suffix": Spelling("SA", _ARGS_MAIN),
    },
}


@dataclass(frozen=True)
class Release:
    """One release. ``container`` is the newest Triton image known to carry it; empty tables mean: cannot be used so."""

    name: str
    generation: Generation
    container: str | None
    container_source: str
    tensorrt: Mapping[str, Spelling] = field(default_factory=dict)
    pytorch: Mapping[str, Spelling] = field(default_factory=dict)

    @property
    def compiles(self) -> bool:
        return bool(self.tensorrt)

    def spelling(self, method: str, runtime: Runtime) -> Spelling | None:
        table = {"tensorrt": self.tensorrt, "pytorch": self.pytorch}.get(runtime, {})
        return table.get(method)

    def refusal(self, method: str, runtime: Runtime, *, version: int | None = None) -> str | None:
        """Why this method does not run here, with the nearest thing that works; None when it does.

        ``version`` is the spec's ``speculation.version`` of method eagle.
        """
        if runtime == "reference":
            return _reference_refusal(method)
        if runtime == "tensorrt":
            return _tensorrt_refusal(self, method, version)
        return _pytorch_refusal(self, method)


def _image(tag: str) -> str:
    return IMAGE.format(tag=tag)


RELEASES: Mapping[str, Release] = {
    release.name: release
    for release in (
        Release("0.21.0", "A", _image("25.08"), _TB + "r25.08", TENSORRT),
        Release("1.0.0", "A", _image("25.10"), _TB + "r25.10 @ ae8270b7", TENSORRT),
        Release("1.1.0", "A", _image("26.02"), _TB + "r26.02 @ 39b3c229", TENSORRT),
        Release(
            "1.2.0",
            "B",
            None,
            _TB + "r26.03 carries 1.2.0rc8 and r26.04 carries 1.2.1: no image carries 1.2.0",
            TENSORRT,
            {**_PYTORCH_B, "draft_target": _DRAFT_TARGET_1_2},
        ),
        Release(
            "1.2.1",
            "B",
            _image("26.07"),
            _TB + "r26.07 @ ca88df0a",
            TENSORRT,
            {**_PYTORCH_B, "draft_target": _DRAFT_TARGET_1_2},
        ),
        # 1.3.0rc20 is the last candidate with the TensorRT backend (its release text); we compile up to 1.2.x only.
        Release("1.3", "B", None, "no Triton image with 1.3 was found", {}, PYTORCH["B"]),
        Release("main", "main", None, "no Triton image with main was found", {}, PYTORCH["main"]),
    )
}

DEFAULT = "1.2.1"
REFERENCE_METHODS = frozenset({"none", "ngram", "draft_target"})  # what our own runtime proposes with


def find(name: str) -> Release:
    """The release of that name. Raises SpecError with the known ones and the nearest."""
    if name in RELEASES:
        return RELEASES[name]
    near = difflib.get_close_matches(name, RELEASES, n=1, cutoff=0.5)
    hint = f'did you mean "{near[0]}"? ' if near else ""
    raise SpecError(
        f'release "{name}" is not known',
        code="unknown_release",
        where="release",
        hint=f"{hint}known: {', '.join(RELEASES)}",
    )


def resolve_runtime(
    runtime: str, method: str, release: Release, *, accelerated: bool, version: int | None = None
) -> Runtime:
    """``auto`` becomes the first runtime that serves the method. ``accelerated``: TensorRT-LLM and a GPU are here."""
    named: Mapping[str, Runtime] = {"tensorrt": "tensorrt", "pytorch": "pytorch", "reference": "reference"}
    if runtime in named:
        return named[runtime]
    if accelerated:
        if release.refusal(method, "tensorrt", version=version) is None:
            return "tensorrt"
        if release.refusal(method, "pytorch") is None:
            return "pytorch"
    return "reference"


_NEAREST_REFERENCE = {"suffix": "ngram", "lookahead": "ngram"}


def _reference_refusal(method: str) -> str | None:
    if method in REFERENCE_METHODS:
        return None
    nearest = _NEAREST_REFERENCE.get(method, "draft_target")
    return f"method {method} does not run on runtime reference; nearest that does: method {nearest}"


_TENSORRT_REASONS = {
    "eagle3": ("EAGLE-3 compiles in no TensorRT-LLM release", f"runtime pytorch with release {DEFAULT}"),
    "mtp": ("MTP compiles in no TensorRT-LLM release", f"runtime pytorch with release {DEFAULT}"),
    "specinfer": ("no engine takes a token tree from draft models", "method draft_target"),
}


def _tensorrt_refusal(release: Release, method: str, version: int | None) -> str | None:
    if method in _TENSORRT_REASONS:
        reason, nearest = _TENSORRT_REASONS[method]
        return f"method {method} does not run on runtime tensorrt: {reason}; nearest that works: {nearest}"
    if not release.compiles:
        nearest = f"release {DEFAULT}" + (", or runtime pytorch" if method in release.pytorch else "")
        return (
            f"method {method} does not run on runtime tensorrt with release {release.name}: TensorRT-LLM 1.2.x is the "
            f"last line whose engines we compile; nearest that works: {nearest}"
        )
    if method == "eagle" and version == 2:
        return (
            "method eagle with version 2 does not run on runtime tensorrt: the C++ backend has no parameter for its "
            "dynamic tree; nearest that works: version 1"
        )
    if method not in release.tensorrt:
        return f"method {method} does not run on runtime tensorrt; nearest that works: method draft_target"
    return None


def _pytorch_refusal(release: Release, method: str) -> str | None:
    if not release.pytorch:
        return (
            f"method {method} does not run on runtime pytorch with release {release.name}: that runtime needs "
            f"TensorRT-LLM 1.2.0 or later; nearest that works: release {DEFAULT}"
        )
    if method in release.pytorch:
        return None
    if method == "suffix":
        return (
            f"method suffix does not run on runtime pytorch with release {release.name}, which has no SA decoding; "
            "nearest that works: method ngram, or release main"
        )
    if method in TENSORRT:
        return (
            f"method {method} does not run on runtime pytorch: the LLM API has it only on the TensorRT backend; "
            f"nearest that works: runtime tensorrt with release {DEFAULT}"
        )
    return f"method {method} does not run on runtime pytorch; nearest that works: method draft_target"
