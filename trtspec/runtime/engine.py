"""The reference engine: a thread that steps while there is work. Implements types.Engine."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import torch

from trtspec.errors import CheckpointError, RequestError, UserError
from trtspec.runtime.cache import allocate_cache
from trtspec.runtime.config import ModelConfig
from trtspec.runtime.core import Core
from trtspec.runtime.memory import free_bytes, kv_capacity
from trtspec.runtime.model import Decoder
from trtspec.runtime.native import SUFFIX, NativeOps
from trtspec.runtime.ops import Ops, TorchOps
from trtspec.runtime.options import EngineOptions
from trtspec.runtime.proposers.base import Proposer
from trtspec.runtime.proposers.draft_target import DraftTargetProposer
from trtspec.runtime.proposers.ngram import NgramProposer
from trtspec.runtime.sequence import OnStep, Sequence
from trtspec.runtime.types import Capabilities, EngineRequest, EngineStatus, Step, StopCheckerFactory
from trtspec.runtime.weights import load_packed

log = logging.getLogger(__name__)


class LocalEngine:
    """Thread-safe; ``close`` ends the thread. Open it with ``open``.

    All tensor work, opening included, is done on the engine's one thread: OpenMP keeps a team of workers for every
    thread that ever computed, and GNU's stops waiting actively as soon as there are more of them than processors,
    which made a step of a small model a quarter slower.
    """

    def __init__(self, options: EngineOptions, stop_checkers: StopCheckerFactory | None = None) -> None:
        self.options = options
        self._stop_checkers = stop_checkers
        self._arrivals: list[Sequence] = []
        self._live: dict[str, Sequence] = {}
        self._wake = threading.Condition()
        self._closing = False
        opened: queue.SimpleQueue[Core | Exception] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(opened,), name="trtspec-engine", daemon=True)
        self._thread.start()
        core = opened.get()
        if isinstance(core, Exception):
            raise core
        self._core = core

    @staticmethod
    def open(options: EngineOptions, stop_checkers: StopCheckerFactory | None = None) -> LocalEngine:
        """Maps the packed checkpoints and allocates all KV memory. Raises CheckpointError."""
        return LocalEngine(options, stop_checkers)

    def capabilities(self) -> Capabilities:
        o = self.options
        return Capabilities(
            method=o.method,
            max_draft_len=o.max_draft_len,
            acceptance="rejection",
            max_seq_len=o.max_seq_len,
            max_input_len=o.max_input_len,
            max_batch_size=o.max_batch_size,
            vocab_size=self._core.model.vocab_size,
        )

    def submit(self, request: EngineRequest, on_step: OnStep) -> None:
        """Queues a request; ``on_step`` is called from the engine's thread, the last time with ``finish`` or ``error``.

        Raises RequestError for a request this engine cannot hold, and ValueError for an id already in flight.
        """
        sequence = self._sequence(request, on_step)
        with self._wake:
            if self._closing:
                raise UserError("the engine is closed", code="closed")
            if request.id in self._live:
                raise ValueError(f"request id {request.id!r} is already in flight")
            self._live[request.id] = sequence
            self._arrivals.append(sequence)
            self._wake.notify()

    def generate(self, request: EngineRequest) -> Iterator[Step]:
        """Submits at once; yields steps until the last. Closing the iterator early cancels the request."""
        steps: queue.SimpleQueue[Step] = queue.SimpleQueue()
        self.submit(request, steps.put)
        return self._drain(request.id, steps)

    def _drain(self, request_id: str, steps: queue.SimpleQueue[Step]) -> Iterator[Step]:
        done = False
        try:
            while not done:
                step = steps.get()
                done = step.finish is not None or step.error is not None
                yield step
        finally:
            if not done:
                self.cancel(request_id)

    def cancel(self, request_id: str) -> None:
        with self._wake:
            sequence = self._live.get(request_id)
            if sequence is not None:
                sequence.cancelled = True
                self._wake.notify()

    def status(self) -> EngineStatus:
        with self._wake:
            core = self._core
            return EngineStatus(
                active=len(core.running),
                queued=len(core.waiting) + len(self._arrivals),
                kv_tokens_used=core.memory.used,
                kv_tokens_total=core.memory.total,
            )

    def close(self) -> None:
        """Ends the thread; whatever is in flight ends as cancelled."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def _sequence(self, request: EngineRequest, on_step: OnStep) -> Sequence:
        o, vocab = self.options, self._core.model.vocab_size
        length = len(request.prompt_ids)
        if not 0 < length <= o.max_input_len:
            raise RequestError("prompt", f"the prompt has {length} tokens; this engine takes 1 to {o.max_input_len}")
        if request.max_tokens < 1:
            raise RequestError("max_tokens", f"max_tokens is {request.max_tokens}; it must be at least 1")
        if not 0 <= request.max_draft_len <= o.max_draft_len:
            raise RequestError(
                "max_draft_len",
                f"max_draft_len is {request.max_draft_len}; this engine drafts at most {o.max_draft_len}",
            )
        bad = next((i for i in request.prompt_ids if not 0 <= i < vocab), None)
        if bad is not None:
            raise RequestError("input_ids", f"token id {bad} is outside the vocabulary of {vocab}")
        if request.stop and self._stop_checkers is None:
            raise RequestError(
                "stop", "this engine was opened without a tokenizer, so it cannot watch for stop strings"
            )
        return Sequence(
            request=request,
            on_step=on_step,
            ids=list(request.prompt_ids),
            limit=min(request.max_tokens, o.max_seq_len - length),
            stop=self._stop_checkers(request.stop) if request.stop and self._stop_checkers else None,
        )

    def _run(self, opened: queue.SimpleQueue[Core | Exception]) -> None:
        try:
            core = build_core(self.options)
        except Exception as error:  # raised again by the thread that opens the engine
            opened.put(error)
            return
        opened.put(core)
        while True:
            with self._wake:
                while not (self._arrivals or core.busy or self._closing):
                    self._wake.wait()
                for sequence in self._arrivals:
                    core.add(sequence)
                self._arrivals.clear()
                if self._closing:
                    break
            self._step(core)
        for sequence in core.abandon():
            self._deliver(sequence, Step(sequence.request.id, (), finish="cancelled"))

    def _step(self, core: Core) -> None:
        """A failure inside a pass ends the requests that were in it with an error, never the engine."""
        try:
            results = core.step()
        except Exception as error:
            log.exception("a step of the reference engine failed")
            message = f"the engine failed on this request's batch: {type(error).__name__}: {error}"
            results = [(s, Step(s.request.id, (), error=message)) for s in core.abandon()]
        for sequence, step in results:
            self._deliver(sequence, step)

    def _deliver(self, sequence: Sequence, step: Step) -> None:
        if step.finish is not None or step.error is not None:
            with self._wake:
                self._live.pop(step.request_id, None)
        try:
            sequence.on_step(step)
        except Exception:  # whatever the receiver's code raises: the others' steps must go out
            log.exception("the receiver of request %s failed; it is cancelled", step.request_id)
            sequence.cancelled = True


def build_core(options: EngineOptions) -> Core:
    """Everything below the thread: models, caches and the proposer."""
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    device = device_of(options)
    config, model = open_decoder(options, options.target)
    draft = open_decoder(options, options.draft) if options.draft is not None else None
    if draft is not None and draft[1].vocab_size != model.vocab_size:
        raise CheckpointError(
            f"the draft has {draft[1].vocab_size} tokens and the target {model.vocab_size}",
            where="speculation.draft.model",
            hint="a draft needs the target's own vocabulary: choose another of the same family",
        )
    per_token = config.kv_elements_per_token * model.dtype.itemsize
    if draft is not None:
        per_token += draft[0].kv_elements_per_token * draft[1].dtype.itemsize
    tokens = kv_capacity(options.kv_tokens, per_token, options.max_seq_len, options.max_batch_size, free_bytes(device))
    cache = allocate_cache(config, tokens, model.dtype, device)
    proposer = _proposer(options, draft, tokens, device)
    return Core(model, cache, proposer, max_batch_size=options.max_batch_size, max_num_tokens=options.max_num_tokens)


def device_of(options: EngineOptions) -> torch.device:
    if options.device != "auto":
        return torch.device(options.device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def open_decoder(options: EngineOptions, folder: str) -> tuple[ModelConfig, Decoder]:
    config, tensors = load_packed(Path(folder))
    device = device_of(options)
    if device.type != "cpu":
        tensors = {name: tensor.to(device) for name, tensor in tensors.items()}
    ops = _ops(options, config, tensors["embed.weight"].dtype, device)
    return config, Decoder(config, tensors, ops, options.vocab_size, options.max_seq_len)


def _ops(options: EngineOptions, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> Ops:
    native = options.compile != "off" and options.kernels is not None
    if native and device.type == "cpu" and dtype in SUFFIX:
        return NativeOps(config, Path(str(options.kernels)), dtype)
    if options.compile == "on":
        raise CheckpointError(
            f"native kernels are asked for, but there are none for {dtype} on {device}",
            where="reference.compile",
            hint="install a C++ compiler and run `trtspec build`, or set reference.compile: auto",
        )
    return TorchOps(config, dtype, device)


def _proposer(
    options: EngineOptions, draft: tuple[ModelConfig, Decoder] | None, tokens: int, device: torch.device
) -> Proposer | None:
    if options.method == "none" or options.max_draft_len == 0:
        return None
    if options.method == "ngram":
        return NgramProposer(int(options.method_options["max_ngram"]), int(options.method_options["min_ngram"]))
    if options.method == "draft_target" and draft is not None:
        config, model = draft
        return DraftTargetProposer(model, allocate_cache(config, tokens, model.dtype, device), options.max_num_tokens)
    raise CheckpointError(
        f"the reference runtime has no method {options.method!r}" if options.method != "draft_target" else "no draft",
        where="speculation.method",
        hint="use none, ngram or draft_target",
    )
