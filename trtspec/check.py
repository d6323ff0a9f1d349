"""Everything that can be known before work. Pure: what is known of models and machine is passed in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import trtspec
from trtspec.check_facts import CheckFacts, Headers, MachineFacts, ModelFacts
from trtspec.errors import SpecError
from trtspec.finding import Finding, finding_of, found, in_order
from trtspec.known import models_of, pack_dtype, refusal_of, spec_path
from trtspec.memory import human_bytes, kv_bytes_per_token, weights_bytes
from trtspec.methods.draft_target import DraftTarget
from trtspec.methods.model import Checkpoint, Quantization
from trtspec.pair import check_pair
from trtspec.spec.model import Spec
from trtspec.trtllm.releases import Release, Runtime, find, resolve_runtime

__all__ = ["CheckFacts", "Finding", "MachineFacts", "ModelFacts", "check"]

_FP8_COMPUTE = 8.9  # Ada; per-tensor FP8 weights, docs/source/features/quantization.md @ 09d4c79b
_LOOPBACK = ("localhost", "::1", "[::1]")


@dataclass(frozen=True)
class _Case:
    """What every check looks at: the spec, what is known, and the runtime that ``auto`` came to."""

    spec: Spec
    known: CheckFacts
    release: Release
    runtime: Runtime

    @property
    def models(self) -> Mapping[str, Checkpoint]:
        return models_of(self.spec)

    def of(self, role: str) -> ModelFacts:
        return self.known.models.get(role, ModelFacts())

    def headers(self) -> Mapping[str, Headers]:
        """By role, of the models that are on disk."""
        return {role: headers for role in self.models if (headers := self.of(role).headers) is not None}

    def gpus(self, role: str) -> int:
        """Devices that share a model; the reference runtime uses one."""
        return 1 if self.runtime == "reference" else self.models[role].gpus

    def dtype(self, role: str, headers: Headers) -> str:
        return pack_dtype(self.models[role].dtype, headers)

    def quantization(self, role: str) -> Quantization:
        """What the runtime makes of the wish: the reference runtime computes in ``dtype``."""
        return Quantization() if self.runtime == "reference" else self.models[role].quantization


def check(spec: Spec, known: CheckFacts) -> list[Finding]:
    """What is wrong with the spec, or worth knowing: the gravest first, then as written."""
    try:
        release = find(spec.release)
    except SpecError as error:
        return [finding_of(error, spec, "release")]
    runtime = resolve_runtime(
        spec.runtime,
        spec.speculation.method,
        release,
        accelerated=known.machine is not None and known.machine.accelerated,
        version=getattr(spec.speculation, "version", None),
    )
    case = _Case(spec, known, release, runtime)
    return in_order(finding for one in _CHECKS for finding in one(case))


def _supported(case: _Case) -> Iterator[Finding]:
    """Method, runtime and release go together."""
    refusal = refusal_of(case.spec, case.release, case.runtime)
    if refusal is not None:
        written = case.spec.position("speculation") != (None, None)
        yield found(case.spec, "error", "speculation.method" if written else "runtime", "unsupported_method", refusal)
    elif case.runtime != "reference":
        message = f"trtspec {trtspec.__version__} plans runtime {case.runtime} and does not build it yet"
        yield found(case.spec, "warning", "runtime", "not_built_yet", message, "to build now, write runtime: reference")


def _options(case: _Case) -> Iterator[Finding]:
    """What is written and the runtime has not."""
    spec, method = case.spec, case.spec.speculation
    if case.runtime != "reference":
        if spec.limits.kv_tokens is not None:
            message = f"kv_tokens is of the reference runtime: runtime {case.runtime} sizes its KV cache by gpu_memory"
            yield found(spec, "warning", "limits.kv_tokens", "unused", message, "leave it out")
        return
    if spec.reference.exact:
        message = "exact does not run on runtime reference yet; nearest that does: exact: false with dtype: float32"
        yield found(spec, "error", "reference.exact", "unsupported_option", message)
    options = {"tree": method.tree, "min_confidence": method.min_confidence} if isinstance(method, DraftTarget) else {}
    for key, value in options.items():
        if value is not None:
            message = f"{key} of draft_target does not run on runtime reference; nearest that does: {key}: null"
            yield found(spec, "error", f"speculation.{key}", "unsupported_option", message)


def _formats(case: _Case) -> Iterator[Finding]:
    for role, model in case.models.items():
        if case.runtime != "reference" and model.model.endswith(".gguf"):
            message = f"a GGUF file does not run on runtime {case.runtime}; nearest that works: runtime reference"
            hint = "or name the Hugging Face folder the file was made from"
            yield found(case.spec, "error", f"{spec_path(role)}.model", "unsupported_format", message, hint)


def _routes(case: _Case) -> Iterator[Finding]:
    method = case.spec.speculation
    for name, route in case.spec.routes.items():
        if route.speculation == "always" and method.draft_len == 0:
            message = f"route {name} wants speculation always, and method {method.method} drafts nothing"
            yield found(
                case.spec,
                "warning",
                f"routes.{name}.speculation",
                "nothing_drafted",
                message,
                "choose a method that drafts, or leave speculation out of the route",
            )


def _draft_lengths(case: _Case) -> Iterator[Finding]:
    """A draft as long as the longest request is never verified whole."""
    target = case.of("target").headers
    limits = case.spec.limits
    longest = limits.seq_len() if target is None else limits.seq_len(target.config.max_positions)
    lengths = {f"routes.{name}.max_draft_len": route.max_draft_len for name, route in case.spec.routes.items()}
    for where, length in {"speculation.max_draft_len": case.spec.speculation.draft_len, **lengths}.items():
        if length is not None and length >= longest:
            message = f"{where} {length} is not below max_seq_len {longest}: so long a draft never fits a request"
            yield found(case.spec, "warning", where, "draft_too_long", message, "a few tokens pay; 4 is usual")


def _gate(case: _Case) -> Iterator[Finding]:
    """``off_when`` acts; so does ``policy: off``, since nothing decides."""
    gate = case.spec.gate
    idle = gate.model_fields_set - {"off_when"} - ({"policy"} if gate.policy == "off" else set())
    for key in sorted(idle):
        message = f"trtspec {trtspec.__version__} does not act on gate.{key} yet"
        yield found(case.spec, "info", f"gate.{key}", "not_acted_on", message)


def _readable(case: _Case) -> Iterator[Finding]:
    """Each model: whether it is on disk and can be read."""
    for role, model in case.models.items():
        facts = case.of(role)
        where = f"{spec_path(role)}.model"
        if facts.problem is not None:
            yield finding_of(facts.problem, case.spec, where)
        elif facts.headers is None:
            message = f"{model.model} is not on disk: its sizes and tokens are checked once it is fetched"
            yield found(case.spec, "info", where, "not_on_disk", message)


def _tokens(case: _Case) -> Iterator[Finding]:
    """Each tokenizer fits its own output matrix, and each draft its target."""
    for role in case.models:
        facts = case.of(role)
        if facts.headers is None or facts.vocabulary is None:
            continue
        rows, tokens = facts.headers.config.vocab_size, facts.vocabulary.vocab_size
        if tokens > rows:
            message = f"the tokenizer has {tokens} tokens and the output matrix only {rows} rows"
            hint = "use the tokenizer that came with these weights"
            yield found(case.spec, "error", f"{spec_path(role)}.model", "tokenizer_size", message, hint)
    for role in case.spec.speculation.model_refs():
        yield from check_pair(case.spec, spec_path(role), case.of("target"), case.of(role))


def _lengths(case: _Case) -> Iterator[Finding]:
    """The limits against the positions that the models were made for."""
    spec, limits = case.spec, case.spec.limits
    target = case.of("target").headers
    if target is None:
        return
    positions = target.config.max_positions
    longest = limits.seq_len(positions)
    if longest > positions:
        message = f"max_seq_len {longest} is more than the {positions} positions of the target"
        yield found(spec, "error", "limits.max_seq_len", "too_long", message, f"write {positions} or less")
        return
    if (limits.max_input_len or 0) > longest - 1:
        message = (
            f"max_input_len {limits.max_input_len} leaves no room for output: the target has {positions} positions"
        )
        yield found(spec, "error", "limits.max_input_len", "too_long", message, f"write {longest - 1} or less")
    for role in spec.speculation.model_refs():
        draft = case.of(role).headers
        if draft is not None and draft.config.max_positions < longest:
            message = f"the draft has {draft.config.max_positions} positions and a request may have {longest}"
            hint = f"beyond them it drafts badly: write max_seq_len: {draft.config.max_positions}, or another draft"
            yield found(spec, "warning", f"{spec_path(role)}.model", "draft_too_short", message, hint)


def _kv_tokens(case: _Case) -> Iterator[Finding]:
    limits, target = case.spec.limits, case.of("target").headers
    if limits.kv_tokens is None or case.runtime != "reference" or (target is None and limits.max_seq_len is None):
        return
    longest = limits.seq_len() if target is None else limits.seq_len(target.config.max_positions)
    if limits.kv_tokens < longest:
        message = f"kv_tokens {limits.kv_tokens} is raised to max_seq_len {longest}, so that one longest request fits"
        hint = f"write kv_tokens: {longest} or more, or max_seq_len: {limits.kv_tokens}"
        yield found(case.spec, "warning", "limits.kv_tokens", "kv_too_small", message, hint)


def _quantization(case: _Case) -> Iterator[Finding]:
    for role, model in case.models.items():
        wish, headers = model.quantization, case.of(role).headers
        where = f"{spec_path(role)}.quantization"
        quantized = [f"{key} {value}" for key, value in (("weights", wish.weights), ("kv_cache", wish.kv_cache))
                     if value in ("fp8", "int8")]  # fmt: skip
        if case.runtime == "reference" and quantized:
            dtype = "its own dtype" if headers is None else case.dtype(role, headers)
            message = f"runtime reference computes in {dtype} and does not apply {' and '.join(quantized)}"
            hint = "nothing to do: it takes effect on the tensorrt and pytorch runtimes"
            yield found(case.spec, "warning", where, "not_quantized", message, hint)
        if wish.weights == "checkpoint" and headers is not None and headers.quantization is None:
            message = "weights: checkpoint says that the weights are quantized already, and they are not"
            yield found(case.spec, "error", where, "not_quantized", message, "write weights: fp8, or leave it out")


def _parallel(case: _Case) -> Iterator[Finding]:
    for role, model in case.models.items():
        if case.runtime == "reference":
            if model.gpus > 1:
                message = f"runtime reference runs on one device: {model.gpus} GPUs are not used"
                yield found(case.spec, "info", f"{spec_path(role)}.tensor_parallel", "not_parallel", message)
            continue
        headers = case.of(role).headers
        if headers is not None and headers.config.num_heads % model.tensor_parallel:
            message = f"{headers.config.num_heads} attention heads cannot be shared by {model.tensor_parallel} GPUs"
            hint = f"write a divisor of {headers.config.num_heads}"
            yield found(case.spec, "error", f"{spec_path(role)}.tensor_parallel", "indivisible", message, hint)


def _memory(case: _Case) -> Iterator[Finding]:
    """Weights of all models and the KV caches of one longest request (or of kv_tokens) fit."""
    headers = case.headers()
    machine, limits = case.known.machine, case.spec.limits
    room = None if machine is None else _room(case, machine)
    if room is None or len(headers) < len(case.models):
        return
    weights = sum(_weights(case, role, one) // case.gpus(role) for role, one in headers.items())
    per_token = sum(-(-_kv_per_token(case, role, one) // case.gpus(role)) for role, one in headers.items())
    on_cpu = case.runtime == "reference"
    tokens = max(on_cpu * (limits.kv_tokens or 0), limits.seq_len(headers["target"].config.max_positions))
    if weights + tokens * per_token > room:
        message = (
            f"weights of {human_bytes(weights)} and a KV cache of {human_bytes(tokens * per_token)} for {tokens} "
            f"tokens do not fit the {'free memory' if on_cpu else 'memory of each GPU'} of {human_bytes(room)}"
        )
        key = "kv_tokens" if on_cpu and limits.kv_tokens == tokens else "max_seq_len"
        hint = f"write a smaller limits.{key}, or choose a smaller model"
        yield found(case.spec, "error", f"limits.{key}", "memory", message, hint)


def _room(case: _Case, machine: MachineFacts) -> int | None:
    """Bytes for weights and KV on the machine, or on the smallest of its GPUs; None where that is not known."""
    if case.runtime == "reference":
        return machine.memory_bytes
    memory = case.spec.limits.gpu_memory
    total = memory.total_bytes or min((gpu.memory_bytes for gpu in machine.gpus), default=0)
    return total - (memory.reserve_bytes or 0) if total else None


def _weights(case: _Case, role: str, headers: Headers) -> int:
    return weights_bytes(headers.config, headers.parameters, case.dtype(role, headers), case.quantization(role))


def _kv_per_token(case: _Case, role: str, headers: Headers) -> int:
    return kv_bytes_per_token(headers.config, case.dtype(role, headers), case.quantization(role))


def _disk(case: _Case) -> Iterator[Finding]:
    """What the build writes: packed weights, or a checkpoint and an engine of each model."""
    free = None if case.known.machine is None else case.known.machine.disk_free_bytes
    copies = {"reference": 1, "tensorrt": 2, "pytorch": 1}[case.runtime]
    needed = copies * sum(_weights(case, role, one) for role, one in case.headers().items())
    if free is not None and needed > free:
        message = f"the build writes about {human_bytes(needed)}, and {human_bytes(free)} of disk are free"
        yield found(case.spec, "error", "target.model", "disk", message, "free some, or name another --engines folder")


def _gpus(case: _Case) -> Iterator[Finding]:
    machine = case.known.machine
    if machine is None or case.runtime == "reference":
        return
    if not machine.gpus:
        message = f"no GPU is seen here: memory and FP8 were not checked for runtime {case.runtime}"
        yield found(case.spec, "info", "runtime", "no_gpu", message, "check again on the machine that will serve")
        return
    for role, model in case.models.items():
        if model.gpus > len(machine.gpus):
            message = (
                f"{model.gpus} GPUs are asked for (tensor_parallel x pipeline_parallel), {len(machine.gpus)} are here"
            )
            yield found(case.spec, "error", f"{spec_path(role)}.tensor_parallel", "too_few_gpus", message)
        for gpu in machine.gpus:
            if model.quantization.weights == "fp8" and float(gpu.compute) < _FP8_COMPUTE:
                message = f"{gpu.name} (compute {gpu.compute}) has no FP8: it begins with 8.9"
                where = f"{spec_path(role)}.quantization.weights"
                yield found(case.spec, "error", where, "no_fp8", message, "write weights: int8 or none")
                break


def _serving(case: _Case) -> Iterator[Finding]:
    serving, machine = case.spec.serving, case.known.machine
    foreign = machine is not None and serving.host in machine.foreign_hosts
    if foreign:
        message = f"{serving.host} is not an address of this machine"
        hint = "write one that is, as 127.0.0.1, or serve on the machine that has it"
        yield found(case.spec, "warning", "serving.host", "foreign_host", message, hint)
    for key, port in serving.ports.items():
        if machine is not None and not foreign and port in machine.busy_ports:
            message = f"port {port} is in use now"
            yield found(case.spec, "warning", f"serving.{key}", "busy_port", message, "stop what uses it, or change it")
    if not (serving.host.startswith("127.") or serving.host in _LOOPBACK):
        message = f"the server will listen on {serving.host}, which others may reach"
        yield found(case.spec, "info", "serving.host", "open_host", message)


def _kernels(case: _Case) -> Iterator[Finding]:
    machine, wanted = case.known.machine, case.spec.reference.compile
    if case.runtime != "reference" or machine is None or machine.compiler is not None or wanted == "off":
        return
    message = "no C++ compiler is found: the native CPU kernels are off"
    hint = "install g++ or clang++"
    yield found(case.spec, "error" if wanted == "on" else "info", "reference.compile", "no_compiler", message, hint)


_CHECKS = (
    _supported,
    _options,
    _formats,
    _routes,
    _draft_lengths,
    _gate,
    _readable,
    _tokens,
    _lengths,
    _kv_tokens,
    _quantization,
    _parallel,
    _memory,
    _disk,
    _gpus,
    _serving,
    _kernels,
)
