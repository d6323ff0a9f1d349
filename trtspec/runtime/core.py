"""In-flight batching: one ``step`` admits, drafts, runs the target once over everything, judges and emits."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from trtspec.runtime.adjust import Adjuster
from trtspec.runtime.batch import Span
from trtspec.runtime.cache import SpanAllocator
from trtspec.runtime.model import Decoder
from trtspec.runtime.proposers.base import Proposal, Proposer
from trtspec.runtime.sequence import Sequence
from trtspec.runtime.types import FinishReason, Step
from trtspec.runtime.verify import Judgement, judge_greedy, judge_sampled

Tensor = torch.Tensor
NOTHING = Proposal([])


@dataclass(frozen=True)
class Block:
    """One sequence's share of a pass's logits: ``1 + len(drafts)`` rows from ``at``."""

    sequence: Sequence
    at: int
    drafts: list[int]
    probs: Tensor | None
    prefill: bool

    @property
    def rows(self) -> slice:
        return slice(self.at, self.at + 1 + len(self.drafts))


class Core:
    """Not thread-safe: the engine's thread owns it."""

    def __init__(
        self,
        model: Decoder,
        cache: Tensor,
        proposer: Proposer | None,
        *,
        max_batch_size: int,
        max_num_tokens: int,
    ) -> None:
        self.model = model
        self.cache = cache
        self.proposer = proposer
        self.max_batch_size = max_batch_size
        self.max_num_tokens = max_num_tokens
        self.memory = SpanAllocator(cache.shape[3])
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.running)

    def add(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    @torch.inference_mode()
    def step(self) -> list[tuple[Sequence, Step]]:
        """One pass; what it gave each request. Cancelled requests end here without joining the pass."""
        out = self._drop_cancelled()
        self._admit()
        if not self.running:
            return out
        blocks, spans = self._plan_pass()
        logits = self.model.forward(spans, self.cache)
        for block, judgement, log_probs in zip(blocks, *self._judge(blocks, logits), strict=True):
            out.append((block.sequence, self._emit(block, judgement, log_probs)))
        return out

    def abandon(self) -> list[Sequence]:
        """Takes every request out and frees all memory; returns them."""
        gone = [*self.running, *self.waiting]
        self.running, self.waiting = [], deque()
        self.memory = SpanAllocator(self.memory.total)
        return gone

    def _drop_cancelled(self) -> list[tuple[Sequence, Step]]:
        gone = [s for s in (*self.running, *self.waiting) if s.cancelled]
        for sequence in gone:
            if sequence.start < 0:
                self.waiting.remove(sequence)
            else:
                self._leave(sequence)
        return [(s, Step(s.request.id, (), finish="cancelled")) for s in gone]

    def _leave(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.memory.give_back(sequence.start, sequence.span)

    def _admit(self) -> None:
        """First come, first served: a request that does not fit yet holds the ones behind it, so none starves."""
        while self.waiting and len(self.running) < self.max_batch_size:
            sequence = self.waiting[0]
            span = sequence.prompt_len + sequence.limit
            start = self.memory.take(span)
            if start is None:
                return
            self.waiting.popleft()
            sequence.start, sequence.span = start, span
            if Adjuster.needed(sequence.request):
                sequence.adjuster = Adjuster(sequence.request, self.model.vocab_size, self.cache.device)
            self.running.append(sequence)

    def _plan_pass(self) -> tuple[list[Block], list[Span]]:
        """Every decoding sequence with its drafts, then prompts as far as the pass's token budget goes."""
        blocks: list[Block] = []
        spans: list[Span] = []
        at = 0
        decoding = [s for s in self.running if s.decoding]
        for sequence, proposal in zip(decoding, self._propose(decoding), strict=True):
            spans.append(Span([sequence.ids[-1], *proposal.tokens], sequence.start, sequence.computed, 0))
            blocks.append(Block(sequence, at, proposal.tokens, proposal.probs, prefill=False))
            at += 1 + len(proposal.tokens)
        budget = self.max_num_tokens
        for sequence in self.running:
            if sequence.decoding or budget == 0:
                continue
            chunk = sequence.ids[sequence.computed : sequence.computed + budget]
            done = sequence.computed + len(chunk) == sequence.prompt_len
            spans.append(Span(chunk, sequence.start, sequence.computed, len(chunk) - 1 if done else len(chunk)))
            sequence.computed += len(chunk)
            budget -= len(chunk)
            if done:
                blocks.append(Block(sequence, at, [], None, prefill=True))
                at += 1
        return blocks, spans

    def _propose(self, decoding: list[Sequence]) -> list[Proposal]:
        """No more than would fit under the request's cap: the pass adds one token of its own to the accepted ones."""
        proposals = [NOTHING] * len(decoding)
        if self.proposer is None:
            return proposals
        lengths = [min(s.request.max_draft_len, s.remaining - 1) for s in decoding]
        wanting = [i for i, length in enumerate(lengths) if length > 0]
        if wanting:
            found = self.proposer.propose([decoding[i] for i in wanting], [lengths[i] for i in wanting])
            for i, proposal in zip(wanting, found, strict=True):
                proposals[i] = proposal
        return proposals

    def _judge(self, blocks: list[Block], logits: Tensor) -> tuple[list[Judgement], list[tuple[float, ...] | None]]:
        """The kept drafts and the added token of every block, and log-probabilities of both where asked for."""
        raw = {b.at: logits[b.rows].clone() for b in blocks if b.sequence.request.return_log_probs}
        for block in blocks:
            sequence = block.sequence
            if sequence.adjuster is not None:
                sequence.adjuster.apply(logits[block.rows], sequence.ids, sequence.emitted, block.drafts)
                sequence.stuck = bool(torch.isneginf(logits[block.rows]).all(dim=-1).any())
        best = logits.argmax(dim=-1).tolist() if blocks else []
        judged = {b.at: judge_greedy(best[b.rows], b.drafts) for b in blocks if b.sequence.request.sampling.greedy}
        sampled = [b for b in blocks if b.at not in judged]
        if sampled:
            rows = [row for b in sampled for row in range(b.rows.start, b.rows.stop)]
            results = judge_sampled(
                logits[rows] if len(rows) < logits.shape[0] else logits,
                [b.drafts for b in sampled],
                [b.probs for b in sampled],
                [b.sequence.request.sampling for b in sampled],
                [b.sequence.emitted for b in sampled],
            )
            judged.update((b.at, judgement) for b, judgement in zip(sampled, results, strict=True))
        log_probs = [
            _log_probs(raw[b.at], [*b.drafts[: judged[b.at].accepted], judged[b.at].token]) if b.at in raw else None
            for b in blocks
        ]
        return [judged[b.at] for b in blocks], log_probs

    def _emit(self, block: Block, judgement: Judgement, log_probs: tuple[float, ...] | None) -> Step:
        """Gives the tokens to the request up to its end, stop or cap, and counts only those."""
        sequence = block.sequence
        if sequence.stuck:
            self._leave(sequence)
            return Step(sequence.request.id, (), error="bad_words forbid every token of the vocabulary")
        tokens = [*block.drafts[: judgement.accepted], judgement.token]
        kept, finish = _cut(sequence, tokens)
        tokens = tokens[:kept]
        drafted = len(block.drafts) if finish is None else min(len(block.drafts), kept)
        accepted = min(judgement.accepted, kept)
        judged = min(accepted + 1, drafted)
        if not block.prefill:
            sequence.computed += 1 + judgement.accepted
        sequence.ids += tokens
        if sequence.adjuster is not None:
            sequence.adjuster.push(tokens)
        if block.drafts and self.proposer is not None:
            self.proposer.settle(sequence, judgement.accepted)
        if finish is not None:
            self._leave(sequence)
        return Step(
            sequence.request.id,
            tuple(tokens),
            log_probs[:kept] if log_probs is not None else None,
            drafted,
            judged,
            accepted,
            block.prefill,
            finish,
        )


def _cut(sequence: Sequence, tokens: Iterable[int]) -> tuple[int, FinishReason | None]:
    """How many of ``tokens`` the user gets, and why no more come."""
    kept, emitted = 0, sequence.emitted
    for token in tokens:
        kept += 1
        if token in sequence.request.end_ids:
            return kept, "stop"
        if sequence.stop is not None and sequence.stop.push(token):
            return kept, "stop"
        if emitted + kept >= sequence.limit:
            return kept, "length"
    return kept, None


def _log_probs(raw: Tensor, tokens: list[int]) -> tuple[float, ...]:
    """Natural log of the raw softmax of each token; ``raw`` [rows >= len(tokens), V]."""
    rows = raw[: len(tokens)]
    picked = rows.gather(1, torch.tensor(tokens, device=raw.device).unsqueeze(1)).squeeze(1)
    return tuple((picked - rows.logsumexp(dim=-1)).tolist())
