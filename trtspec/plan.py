"""From spec and facts to the ordered steps of a build. Pure: nothing here reads, writes or starts anything."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtspec import steps as flows
from trtspec.errors import SpecError
from trtspec.known import Known, models_of, pack_dtype, refusal_of
from trtspec.memory import ModelMemory, human_bytes, memory_of
from trtspec.spec.model import Spec
from trtspec.steps import STORED, Compiler, Job, Places, Step
from trtspec.trtllm.releases import Release, Runtime, find

FLOWS: Mapping[Runtime, Callable[[Job], list[Step]]] = {
    "reference": flows.reference_steps,
    "tensorrt": flows.tensorrt_steps,
    "pytorch": flows.pytorch_steps,
}


@dataclass(frozen=True)
class Plan:
    name: str
    release: str
    runtime: Runtime
    method: str
    steps: tuple[Step, ...]
    model_repo: Path
    models: tuple[str, ...]
    memory: Mapping[str, ModelMemory | None]  # by role; None: not on disk
    notes: tuple[str, ...] = ()

    @property
    def stored(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.kind in STORED)

    def with_cached(self, ids: frozenset[str]) -> Plan:
        steps = (dataclasses.replace(step, cached=step.cached or step.id in ids) for step in self.steps)
        return dataclasses.replace(self, steps=tuple(steps))

    def to_dict(self) -> dict[str, Any]:
        memory = {role: None if value is None else value.to_dict() for role, value in self.memory.items()}
        return {
            "name": self.name,
            "release": self.release,
            "runtime": self.runtime,
            "method": self.method,
            "steps": [step.to_dict() for step in self.steps],
            "repository": {"path": str(self.model_repo), "models": list(self.models)},
            "memory": {"draft": None, **memory} if any(memory.values()) else None,
            "notes": list(self.notes),
        }


def plan(
    spec: Spec,
    known: Mapping[str, Known | None],
    runtime: Runtime,
    places: Places,
    *,
    compiler: Compiler | None = None,
    memory_bytes: int | None = None,
) -> Plan:
    """The steps of a build. ``runtime`` is resolved, never "auto".

    ``known`` holds, by role, the models that are on disk; without one, its keys and memory are unknown.
    ``memory_bytes`` is the free memory of the machine, or of one GPU. Raises SpecError for what cannot be built.
    """
    release = find(spec.release)
    _refuse(spec, release, runtime)
    job = Job(spec, known, places, release)
    steps = [*flows.fetch_steps(job), *FLOWS[runtime](job)]
    if runtime == "reference" and compiler is not None:
        steps.append(flows.kernels_step(job, compiler))
    steps.append(flows.repository_step(job, steps))
    return Plan(
        name=spec.name,
        release=release.name,
        runtime=runtime,
        method=spec.speculation.method,
        steps=tuple(steps),
        model_repo=places.model_repo,
        models=_triton_models(spec, runtime),
        memory=memory_of(spec, known, runtime, memory_bytes),
        notes=tuple(_notes(spec, known, release, runtime)),
    )


def _refuse(spec: Spec, release: Release, runtime: Runtime) -> None:
    why = refusal_of(spec, release, runtime)
    if why is not None:
        line, column = spec.position("speculation.method")
        raise SpecError(why, code="unsupported_method", where="speculation.method", line=line, column=column)


def _triton_models(spec: Spec, runtime: Runtime) -> tuple[str, ...]:
    inner = ["engine"]
    if runtime == "tensorrt":
        inner = [role.replace(".", "") for role in models_of(spec)]
    return (spec.name, f"{spec.name}_unary", *(f"{spec.name}__{role}" for role in inner))


def _notes(spec: Spec, known: Mapping[str, Known | None], release: Release, runtime: Runtime) -> list[str]:
    notes = []
    for role, model in models_of(spec).items():
        here = known.get(role)
        if here is None:
            notes.append(f"{role}: {model.model} is not on disk; its keys and memory are known once it is fetched")
        elif here.identity is None:
            notes.append(f"{role}: {here.path} is not hashed yet; its keys are known once it is built")
        if runtime == "reference" and model.quantization.weights in ("fp8", "int8"):
            dtype = pack_dtype(model.dtype, None if here is None else here.facts)
            notes.append(
                f"{role}: runtime reference computes in {dtype}; quantization {model.quantization.weights} "
                "is for the TensorRT-LLM runtimes"
            )
    method = spec.speculation.method
    if spec.runtime == "auto" and method in ("eagle3", "mtp"):
        notes.append(release.refusal(method, "tensorrt") or "")
    spelling = release.spelling(method, runtime)
    if spelling is not None and not spelling.verified:
        notes.append(f"{method} is written {spelling.value} for release {release.name}: {spelling.why}; unverified")
    return notes


def render(planned: Plan) -> str:
    """The plan for people."""
    head = f"{planned.name}: {planned.method} on runtime {planned.runtime}"
    if planned.runtime != "reference":
        head += f", TensorRT-LLM {planned.release}"
    lines = [head, ""]
    for number, step in enumerate(planned.steps, 1):
        lines += _render_step(number, step)
    lines += ["", *_render_memory(planned)]
    lines += [f"note: {note}" for note in planned.notes]
    return "\n".join(lines).rstrip() + "\n"


def _render_step(number: int, step: Step) -> list[str]:
    state = "cached" if step.cached else "to do"
    size = "" if step.disk_bytes is None else f", {human_bytes(step.disk_bytes)}"
    lines = [f"{number:2}. {step.id:18} {state}{size}"]
    if step.argv:
        lines.append(f"      $ {shlex.join(step.argv)}")
    lines += [f"      from {source}" for source in step.inputs]
    lines.append(f"      to   {step.output}")
    return lines


def _render_memory(planned: Plan) -> list[str]:
    lines = []
    for role, memory in planned.memory.items():
        if memory is None or memory.weights_bytes is None or memory.kv_bytes_per_token is None:
            continue
        line = f"{role}: weights {human_bytes(memory.weights_bytes)}, KV {memory.kv_bytes_per_token} bytes a token"
        if memory.kv_tokens is not None and memory.kv_bytes is not None:
            line += f", {memory.kv_tokens} tokens ({human_bytes(memory.kv_bytes)})"
        lines.append(line)
    return lines
