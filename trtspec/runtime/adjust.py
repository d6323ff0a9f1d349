"""What changes logits before a token is chosen: penalties, bad words, and ends held back by min_tokens.

Only rows that ask for something are touched; a verification block is adjusted row by row as if each drafted token
before the row had been emitted, which is what keeps speculation lossless under penalties.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch

from trtspec.runtime.types import EngineRequest, Sampling

Tensor = torch.Tensor


class History:
    """Which ids a request has seen: in the prompt (bool) and how often in the output. [V] each."""

    def __init__(self, request: EngineRequest, vocab: int, device: torch.device) -> None:
        self.in_prompt = torch.zeros(vocab, dtype=torch.bool, device=device)
        prompt = torch.tensor([i for i in request.prompt_ids if i < vocab], dtype=torch.int64, device=device)
        self.in_prompt[prompt] = True
        self.counts = torch.zeros(vocab, dtype=torch.float32, device=device)

    def push(self, token_ids: Seq[int]) -> None:
        for token in token_ids:
            self.counts[token] += 1


class Adjuster:
    """One request's adjustments. ``needed`` is False for most requests, which then never come here."""

    def __init__(self, request: EngineRequest, vocab: int, device: torch.device) -> None:
        self.request = request
        self.history = History(request, vocab, device) if request.sampling.penalised else None

    @staticmethod
    def needed(request: EngineRequest) -> bool:
        return bool(request.sampling.penalised or request.bad_words or (request.min_tokens and request.end_ids))

    def apply(self, logits: Tensor, ids: list[int], emitted: int, drafts: list[int]) -> None:
        """In place on ``logits`` [1 + len(drafts), V]: row j follows ``ids`` and the first j drafts."""
        if self.history is not None:
            self._penalise(logits, self.history, drafts)
        for row in range(logits.shape[0]):
            if self.request.bad_words:
                self._forbid(logits[row], ids, drafts[:row])
            if emitted + row < self.request.min_tokens and self.request.end_ids:
                self._hold_back(logits[row])

    def push(self, token_ids: Seq[int]) -> None:
        if self.history is not None:
            self.history.push(token_ids)

    def _penalise(self, logits: Tensor, history: History, drafts: list[int]) -> None:
        counts = history.counts
        for row in range(logits.shape[0]):
            if row:
                counts = counts.clone() if row == 1 else counts
                counts[drafts[row - 1]] += 1
            penalise(logits[row], history.in_prompt, counts, self.request.sampling)

    def _hold_back(self, row: Tensor) -> None:
        """Ends are forbidden, unless nothing else is left: bad words are a ban, min_tokens is a wish."""
        ends = [end for end in self.request.end_ids if end < row.shape[0]]
        before = row[ends].clone()
        row[ends] = -torch.inf
        if bool(torch.isneginf(row).all()):
            row[ends] = before

    def _forbid(self, row: Tensor, ids: list[int], drafts: list[int]) -> None:
        longest = max(len(word) for word in self.request.bad_words)
        recent = (ids[-longest:] + drafts)[-longest:]
        output = len(ids) - len(self.request.prompt_ids) + len(drafts)
        for word in self.request.bad_words:
            start = len(word) - 1
            # the word must lie in the output: what the prompt ends with is not ours to forbid
            if start <= output and recent[len(recent) - start :] == list(word[:-1]) and word[-1] < row.shape[0]:
                row[word[-1]] = -torch.inf


def penalise(row: Tensor, in_prompt: Tensor, counts: Tensor, sampling: Sampling) -> None:
    """In place on one row [V]. Repetition (Keskar et al. 2019, arXiv:1909.05858): divide a positive, multiply a
    negative logit of any id seen; presence and frequency subtract per id seen in the output and per occurrence."""
    seen_in_output = counts > 0
    if sampling.repetition_penalty != 1.0:
        seen = in_prompt | seen_in_output
        penalty = sampling.repetition_penalty
        row.copy_(torch.where(seen, torch.where(row > 0, row / penalty, row * penalty), row))
    if sampling.presence_penalty or sampling.frequency_penalty:
        row -= sampling.presence_penalty * seen_in_output + sampling.frequency_penalty * counts
