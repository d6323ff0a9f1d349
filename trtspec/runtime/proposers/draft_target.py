"""A small model drafts a chain of tokens, one pass a token over all sequences that still want one."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

import torch

from trtspec.runtime import noise
from trtspec.runtime.batch import Span
from trtspec.runtime.model import Decoder
from trtspec.runtime.proposers.base import Proposal
from trtspec.runtime.sampling import choose, distribution
from trtspec.runtime.sequence import Sequence
from trtspec.runtime.types import Sampling

Tensor = torch.Tensor


@dataclass
class DraftState:
    """``computed`` tokens of the sequence, then ``fed`` of the last proposal, are in the draft's cache."""

    computed: int = 0
    fed: int = 0


class DraftTargetProposer:
    """``cache`` is the draft's own; a sequence uses the same span of it as of the target's."""

    def __init__(self, model: Decoder, cache: Tensor, max_num_tokens: int) -> None:
        self.model = model
        self.cache = cache
        self.max_num_tokens = max_num_tokens

    def propose(self, sequences: Seq[Sequence], lengths: Seq[int]) -> list[Proposal]:
        states = [_state(s) for s in sequences]
        tokens: list[list[int]] = [[] for _ in sequences]
        probs: list[list[Tensor]] = [[] for _ in sequences]
        logits = self._catch_up(sequences, states)
        active = list(range(len(sequences)))
        while active:
            self._draw(logits, [sequences[i] for i in active], [tokens[i] for i in active], [probs[i] for i in active])
            active = [i for i in active if len(tokens[i]) < lengths[i]]
            spans = [
                Span([tokens[i][-1]], sequences[i].start, states[i].computed + len(tokens[i]) - 1, 0) for i in active
            ]
            if spans:
                logits = self.model.forward(spans, self.cache)
        for state, drafted in zip(states, tokens, strict=True):
            state.fed = len(drafted) - 1
        return [Proposal(t, torch.stack(p) if p else None) for t, p in zip(tokens, probs, strict=True)]

    def settle(self, sequence: Sequence, accepted: int) -> None:
        state = _state(sequence)
        state.computed += min(accepted, state.fed)
        state.fed = 0

    def _catch_up(self, sequences: Seq[Sequence], states: Seq[DraftState]) -> Tensor:
        """Takes in what the draft has not seen; logits [len(sequences), V] after each sequence's last token."""
        out: list[Tensor | None] = [None] * len(sequences)
        while any(row is None for row in out):
            budget, spans, ends = self.max_num_tokens, [], []
            for i, (sequence, state) in enumerate(zip(sequences, states, strict=True)):
                missing = sequence.ids[state.computed : state.computed + budget]
                if out[i] is not None or not missing:
                    continue
                done = state.computed + len(missing) == len(sequence.ids)
                spans.append(Span(missing, sequence.start, state.computed, len(missing) - 1 if done else len(missing)))
                state.computed += len(missing)
                budget -= len(missing)
                if done:
                    ends.append(i)
            logits = self.model.forward(spans, self.cache)
            for row, i in enumerate(ends):
                out[i] = logits[row]
        return torch.stack([row for row in out if row is not None])

    def _draw(self, logits: Tensor, sequences: Seq[Sequence], tokens: Seq[list[int]], probs: Seq[list[Tensor]]) -> None:
        """One token a row: the likeliest for greedy requests, else drawn by the request's temperature and filters."""
        best = logits.argmax(dim=-1).tolist()
        sampled = [i for i, s in enumerate(sequences) if not s.request.sampling.greedy]
        if sampled:
            params = [_draft_sampling(sequences[i].request.sampling) for i in sampled]
            q = distribution(logits[sampled], params)
            uniforms = [
                noise.uniform(p.seed, sequences[i].emitted + len(tokens[i]), noise.DRAFT)
                for i, p in zip(sampled, params, strict=True)
            ]
            for row, (i, token) in enumerate(zip(sampled, choose(q, uniforms).tolist(), strict=True)):
                best[i] = token
                probs[i].append(q[row])
        for i, token in enumerate(best):
            tokens[i].append(token)


def _state(sequence: Sequence) -> DraftState:
    if not isinstance(sequence.memo, DraftState):
        sequence.memo = DraftState()
    return sequence.memo


def _draft_sampling(sampling: Sampling) -> Sampling:
    """Penalties are the target's business: any q is lossless, and the acceptance test sees the penalised target."""
    return replace(sampling, repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0)
