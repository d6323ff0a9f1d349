"""From a spec to what is built of it: fetch, pack, compile, each kept by the store; and finding it again."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import trtspec
from trtspec import process
from trtspec.check_facts import MachineFacts
from trtspec.checkpoints import sources
from trtspec.errors import BuildError, StoreError, TrtspecError
from trtspec.examine import require_good
from trtspec.inventory import cache_folder, locate, look, look_at
from trtspec.known import Known, models_of
from trtspec.machine import compiler_fingerprint, disk_free_bytes, read_machine
from trtspec.memory import human_bytes
from trtspec.plan import Plan, plan
from trtspec.runtime import kernels
from trtspec.spec.model import Spec
from trtspec.steps import Compiler, Places, Step, content_key
from trtspec.store import Artifact, Say, Store, sha256
from trtspec.trtllm.releases import Runtime, find, resolve_runtime

__all__ = ["Artifact", "Artifacts", "Store", "building", "built", "ensure", "plan_of", "refuse_early", "wanted_of"]

Advance = Callable[[str, int, int], None]  # a label, bytes done, bytes in all
Artifacts = Mapping[str, Artifact]  # by role; a TensorRT-LLM role's last step
DEFAULT_MODEL_REPO = Path("model_repo")
_TAIL = 15  # lines of a failed step's log that its error shows


def resolved(spec: Spec, machine: MachineFacts) -> Runtime:
    """The runtime that ``auto`` stands for on this machine."""
    return resolve_runtime(
        spec.runtime,
        spec.speculation.method,
        find(spec.release),
        accelerated=machine.accelerated,
        version=getattr(spec.speculation, "version", None),
    )


def plan_of(
    spec: Spec,
    engines: Path,
    model_repo: Path = DEFAULT_MODEL_REPO,
    *,
    known: Mapping[str, Known | None] | None = None,
) -> Plan:
    """The plan on this machine, with what is cached marked. Reads headers; uses no network."""
    machine = read_machine(engines.absolute())
    runtime = resolved(spec, machine)
    free = machine.memory_bytes
    if runtime != "reference":
        free = min((gpu.memory_bytes for gpu in machine.gpus), default=None)
    planned = plan(
        spec,
        look(spec) if known is None else known,
        runtime,
        Places(engines.absolute(), model_repo.absolute()),
        compiler=_compiler(spec, machine) if runtime == "reference" else None,
        memory_bytes=free,
    )
    store = Store(engines.absolute())
    return planned.with_cached(frozenset(step.id for step in planned.stored if store.find(step) is not None))


def ensure(spec: Spec, engines: Path, say: Say, *, advance: Advance | None = None) -> Artifacts:
    """All that the spec needs, built where it is missing. ``say`` is told what happens, one line at a time.

    What is all there is only looked at, so that a store that cannot be written serves too. Kernels that did not
    compile are not tried again here: ``building`` does. Raises BuildError for what `trtspec check` refuses.
    """
    require_good(spec, engines)
    found = _look_up(spec, engines) or []
    failed = [step for step, artifact in found if artifact is None and _tried(step, Store(engines.absolute()))]
    if found and all(artifact is not None or step in failed for step, artifact in found):
        for step in failed:
            say(f"going on without {step.role}, which failed before; `trtspec build` tries it again")
        return {step.role: artifact for step, artifact in found if artifact is not None}
    with building(spec, engines, say, advance=advance) as (_, artifacts):
        return artifacts


@contextlib.contextmanager
def building(
    spec: Spec,
    engines: Path,
    say: Say,
    *,
    model_repo: Path = DEFAULT_MODEL_REPO,
    advance: Advance | None = None,
) -> Iterator[tuple[Plan, Artifacts]]:
    """As ``ensure``; what runs inside still holds the store's lock, so that nobody else builds meanwhile."""
    store = Store(engines.absolute())
    refuse_early(plan_of(spec, engines, model_repo), store)  # before a long download too
    require_good(spec, engines)
    absent = any(locate(spec, model) is None for model in models_of(spec).values())
    with store.lock(say):
        known = _fetched(spec, store, say)
        if absent:
            require_good(spec, engines)  # now that all of it is on disk
        planned = plan_of(spec, engines, model_repo, known=known)
        refuse_early(planned, store)
        artifacts: dict[str, Artifact] = {}
        for step in planned.stored:
            about = {"source": _source(spec, step.role, known.get(step.role))}
            artifact = _made(step, store, about, say, advance or _unwatched)
            if artifact is not None:
                artifacts[step.role] = artifact
        _record(spec, store, artifacts)
        yield planned, artifacts


def built(spec: Spec, engines: Path) -> Artifacts:
    """What ``ensure`` would return, when it is all there. Raises BuildError that names ``trtspec build``."""
    store, found = Store(engines.absolute()), _look_up(spec, engines)
    if found is None:
        return _recorded(spec, store)
    for step, artifact in found:
        if artifact is None and not step.optional:
            raise _not_built(spec, step.role, store, step.output, step.key)
    return {step.role: artifact for step, artifact in found if artifact is not None}


def _look_up(spec: Spec, engines: Path) -> list[tuple[Step, Artifact | None]] | None:
    """Each step with its artifact. None when a model's content is not known, and so no key."""
    known = look(spec)
    if any(here is None or here.identity is None for here in known.values()):
        return None
    store = Store(engines.absolute())
    return [(step, store.find(step)) for step in plan_of(spec, engines, known=known).stored]


def _tried(step: Step, store: Store) -> bool:
    """An optional step that left its log and no artifact."""
    return step.optional and store.log_of(step).exists()


def _compiler(spec: Spec, machine: MachineFacts) -> Compiler | None:
    path = machine.compiler
    if spec.reference.compile == "off":
        return None
    if path is None:
        if spec.reference.compile == "on":
            raise BuildError(
                "reference.compile is on, and there is no C++ compiler on PATH",
                code="no_compiler",
                where="reference.compile",
                hint="install g++ or clang++, or write auto: torch's own kernels are used then",
            )
        return None
    flags = kernels.compile_argv("", "")[:-1]  # without the source's own place
    parts = {"flags": flags, "source": sha256(kernels.SOURCE), "compiler": compiler_fingerprint(path)}
    return Compiler(lambda out: kernels.compile_argv(path, out), content_key(parts))


def _fetched(spec: Spec, store: Store, say: Say) -> dict[str, Known | None]:
    cache = cache_folder()
    known: dict[str, Known | None] = {}
    for role, model in models_of(spec).items():
        source = sources.parse_source(model.model, spec.folder)
        if sources.locate(source, cache, model.revision) is None:
            say(f"fetch-{role}: {model.model}")
            sources.fetch(source, cache, model.revision, run=process.run)
        known[role] = look_at(spec, role, model, cache, hash_all=True)
    return known


def refuse_early(planned: Plan, store: Store) -> None:
    """What would fail for sure fails before any work."""
    if planned.runtime != "reference":
        raise BuildError(
            f"trtspec {trtspec.__version__} plans runtime {planned.runtime} and builds runtime reference",
            code="unsupported_runtime",
            where="runtime",
            hint="to build now, write runtime: reference; `trtspec plan` shows what a build for this runtime will run",
        )
    todo = [step for step in planned.stored if not step.cached]
    needed, free = sum(step.disk_bytes or 0 for step in todo), disk_free_bytes(store.root)
    if needed > free:
        raise StoreError(
            f"the build writes {human_bytes(needed)}, and {store.root} has {human_bytes(free)} free",
            code="disk_full",
            where=str(store.root),
            hint="free some space, or build into another folder with --engines",
        )


def _made(step: Step, store: Store, about: Mapping[str, Any], say: Say, advance: Advance) -> Artifact | None:
    """None when an optional step failed."""
    if not step.cached:
        say(f"{step.id}: to {step.output}")
    try:
        artifact = store.make(step, lambda one, folder, log: _perform(one, folder, log, advance), say, about)
    except TrtspecError as error:
        if not step.optional or isinstance(error, StoreError):
            raise
        say(f"warning: {error.message}\nwarning: going on without {step.role}; {error.hint or ''}".rstrip("; "))
        return None
    say(f"{step.id}: " + ("already built" if artifact.cached else f"done in {artifact.seconds:.1f} s"))
    return artifact


def _source(spec: Spec, role: str, known: Known | None) -> dict[str, Any] | None:
    """Where a role's content came from, for the manifest; None for kernels, which come from us."""
    if known is None:
        return None
    return {
        "model": models_of(spec)[role].model,
        "path": str(known.path),
        "revision": known.revision,
        "files": dict(known.files),
        "tokenizer": known.tokenizer,
    }


def _perform(step: Step, folder: Path, log: Path, advance: Advance) -> None:
    if step.kind == "pack":
        _pack(step, folder, advance)
    elif step.kind == "settings":
        (folder / "settings.json").write_text(json.dumps(dict(step.settings), indent=2) + "\n", encoding="utf-8")
    else:
        _run(step, folder, log)


def _pack(step: Step, folder: Path, advance: Advance) -> None:
    from trtspec.checkpoints.pack import pack  # brings numpy, which a plan does without

    tokenizer = step.settings["tokenizer"]
    pack(
        Path(step.inputs[0]),
        folder,
        step.settings["dtype"],
        lambda done, total: advance(step.id, done, total),
        tokenizer=None if tokenizer is None else Path(tokenizer),
    )


def _run(step: Step, folder: Path, log: Path) -> None:
    argv = [word.replace(str(step.output), str(folder)) for word in step.argv]
    done = process.run(argv, env=step.env, log=log)
    if not done.ok:
        shown = "\n".join(f"  {line}" for line in done.tail(_TAIL))
        raise BuildError(
            f"{step.id} failed with exit code {done.exit_code}\n  command: {shlex.join(step.argv)}\n{shown}",
            code="step_failed",
            where=step.id,
            hint=f"the whole log is {log}; what is built already is kept for the next `trtspec build`",
        )


def _unwatched(label: str, done: int, total: int) -> None:
    """Nobody watches."""


def _record_path(spec: Spec, store: Store) -> Path:
    return store.root / ".builds" / f"{spec.name}.json"


def wanted_of(spec: Spec) -> dict[str, Any]:
    """What of a spec decides its artifacts, apart from the content of its models."""
    return {
        "models": {role: [model.model_dump(mode="json"), str(spec.folder)] for role, model in models_of(spec).items()},
        "runtime": spec.runtime,
        "release": spec.release,
    }


def _record(spec: Spec, store: Store, artifacts: Artifacts) -> None:
    """Lets the built spec be served where its models' sources are no longer on disk."""
    path = _record_path(spec, store)
    path.parent.mkdir(exist_ok=True)
    found = {role: {"folder": artifact.path.name, "key": artifact.key} for role, artifact in artifacts.items()}
    staged = path.with_suffix(".new")
    staged.write_text(json.dumps({"wanted": wanted_of(spec), "artifacts": found}, indent=2), encoding="utf-8")
    staged.replace(path)


def _recorded(spec: Spec, store: Store) -> Artifacts:
    try:
        record = json.loads(_record_path(spec, store).read_text(encoding="utf-8"))
        if record["wanted"] != wanted_of(spec):
            raise _not_built(spec, "target", store)
        folders = {role: (store.root / entry["folder"], entry["key"]) for role, entry in record["artifacts"].items()}
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):  # none, or a damaged one
        raise _not_built(spec, "target", store) from None
    artifacts = {}
    for role, (folder, key) in folders.items():
        artifact = store.find_folder(role, folder, key)
        if artifact is None:
            raise _not_built(spec, role, store, folder, key)
        artifacts[role] = artifact
    return artifacts


def _not_built(spec: Spec, role: str, store: Store, folder: Path | None = None, key: str | None = None) -> BuildError:
    if folder is not None and os.path.lexists(folder):
        return BuildError(
            f"{role} of {spec.name} in {folder} is damaged: {store.damage_of(folder, key)}",
            code="damaged",
            where=role,
            hint="run `trtspec build` again: it is set aside and built anew",
        )
    return BuildError(
        f"{role} of {spec.name} is not built in {store.root}",
        code="not_built",
        where=role,
        hint="run `trtspec build` with this spec first, with the same --engines",
    )
