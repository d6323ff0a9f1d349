"""Distributions are checked by frequency over fixed seeds: nothing here is left to chance at run time. Bounds were
chosen so that a correct implementation would fail for fewer than 1 in 10,000 choices of seeds (4 standard errors)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.runtime.harness import Open
from tests.runtime.packed import bigram_checkpoint
from trtspec.runtime import noise
from trtspec.runtime.sampling import choose, distribution
from trtspec.runtime.types import EngineRequest, Sampling
from trtspec.runtime.verify import judge_sampled, residual

P = (0.5, 0.3, 0.2)
Q = (0.2, 0.3, 0.5)


def _flat(folder: Path, probabilities: tuple[float, ...]) -> str:
    """Every row has the same next-token distribution; id 3 only ever stands in the prompt."""
    row = torch.tensor([*probabilities, 0.0]).log().clamp_min(-1e4)
    return str(bigram_checkpoint(folder, row.repeat(4, 1)))


def _run(
    open_engine: Open, folder: Path, k: int, sampling: dict[str, float], method: str = "draft_target"
) -> tuple[torch.Tensor, float, list[float]]:
    """Frequencies of 200 seeds x 100 tokens, accepted / drafted, and the conditional rate of each position."""
    draft = _flat(folder / "q", Q) if method == "draft_target" else None
    engine = open_engine(_flat(folder / "p", P), draft, method, max(k, 1), max_batch_size=200)
    requests = [
        EngineRequest(str(seed), [3], 100, Sampling(seed=seed, **sampling), max_draft_len=k)  # type: ignore[arg-type]
        for seed in range(200)
    ]
    counts, drafted, accepted = torch.zeros(4), 0, 0
    judged_at, accepted_at = [0] * k, [0] * k
    for stream in [engine.generate(request) for request in requests]:
        for step in stream:
            counts += torch.bincount(torch.tensor(step.token_ids), minlength=4)
            drafted, accepted = drafted + step.drafted, accepted + step.accepted
            for at in range(step.judged):
                judged_at[at] += 1
                accepted_at[at] += at < step.accepted
    assert counts.sum() == 20_000
    conditional = [a / max(j, 1) for a, j in zip(accepted_at, judged_at, strict=True)]
    return counts / 20_000, accepted / max(drafted, 1), conditional


@pytest.mark.parametrize(("k", "rate"), [(1, 0.70), (4, 0.443)])
def test_a15_sampling_keeps_the_targets_distribution(k: int, rate: float, tmp_path: Path, open_engine: Open) -> None:
    frequencies, acceptance, conditional = _run(open_engine, tmp_path, k, {"temperature": 1.0})
    assert torch.allclose(frequencies[:3], torch.tensor(P), atol=0.011)
    assert frequencies[3] == 0
    assert acceptance == pytest.approx(rate, abs=0.02)
    assert conditional == pytest.approx([0.70] * k, abs=0.04)


@pytest.mark.parametrize("method", ["draft_target", "ngram"])
@pytest.mark.parametrize(
    ("sampling", "want"),
    [
        ({"temperature": 0.5}, (0.658, 0.237, 0.105)),
        ({"temperature": 1.0, "top_p": 0.7}, (0.625, 0.375, 0.0)),
        ({"temperature": 1.0, "top_k": 2}, (0.625, 0.375, 0.0)),
        ({"temperature": 1.0, "min_p": 0.5}, (0.625, 0.375, 0.0)),
        ({"temperature": 2.0, "top_k": 1}, (1.0, 0.0, 0.0)),
    ],
)
def test_a16_temperature_and_filters_on_both_sides(
    method: str, sampling: dict[str, float], want: tuple[float, ...], tmp_path: Path, open_engine: Open
) -> None:
    frequencies, _, _ = _run(open_engine, tmp_path, 3, sampling, method)
    assert torch.allclose(frequencies[:3], torch.tensor(want), atol=0.014)
    assert all(f == 0 for f, w in zip(frequencies.tolist(), want, strict=False) if w == 0)


def test_a15_a_broken_rule_would_be_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, open_engine: Open) -> None:
    """The test of the test: taking the correction from p instead of max(0, p - q) shifts frequencies far outside."""
    monkeypatch.setattr("trtspec.runtime.verify.residual", lambda p, token, q: p)
    frequencies, _, _ = _run(open_engine, tmp_path, 1, {"temperature": 1.0})
    assert (frequencies[:3] - torch.tensor(P)).abs().max() > 0.04


def test_exact_probability_of_one_block() -> None:
    """Leviathan's identity, without sampling: P(x) = q(x) min(1, p/q) + P(reject) residual(x) equals p for random
    distributions, hostile ones included."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        p = torch.softmax(torch.randn(12, generator=generator) * 3, 0)
        q = torch.softmax(torch.randn(12, generator=generator) * 3, 0)
        p[:3] = 0
        p /= p.sum()
        kept = torch.minimum(p, q)
        left = residual(p, 0, q)
        got = kept + (1 - kept.sum()) * left / left.sum()
        assert torch.allclose(got, p, atol=1e-6)


def test_a_deterministic_draft_is_judged_with_q_one() -> None:
    requests = 4000
    logits = torch.tensor([0.5, 0.3, 0.2]).log().repeat(2 * requests, 1)
    params = [Sampling(temperature=1.0, seed=seed) for seed in range(requests)]
    judgements = judge_sampled(logits, [[2]] * requests, [None] * requests, params, [0] * requests)
    first = torch.tensor([2 if judgement.accepted else judgement.token for judgement in judgements])
    accepted = sum(judgement.accepted for judgement in judgements)
    assert accepted / requests == pytest.approx(0.2, abs=0.026)
    assert torch.allclose(first.bincount() / requests, torch.tensor(P), atol=0.032)


def test_filters_against_a_plain_rendering() -> None:
    """Row by row, with sorting in Python, for random rows and parameters (top_p beyond the fast window too)."""
    generator = torch.Generator().manual_seed(1)
    params = [
        Sampling(temperature=t, top_k=k, top_p=p, min_p=m)
        for t in (0.3, 1.0, 5.0)
        for k in (0, 1, 5, 4000)
        for p in (1.0, 0.999, 0.5, 0.01)
        for m in (0.0, 0.2)
    ]
    logits = torch.randn(len(params), 3000, generator=generator) * 2
    got = distribution(logits, params)
    for row, (values, s) in enumerate(zip(logits.double(), params, strict=True)):
        scaled = values / s.temperature
        keep = torch.ones(3000, dtype=torch.bool)
        if s.top_k:
            keep &= scaled >= scaled.sort(descending=True).values[min(s.top_k, 3000) - 1]
        if s.top_p < 1:
            probs = torch.softmax(scaled.masked_fill(~keep, -torch.inf), 0)
            mass = 0.0
            for index in probs.argsort(descending=True).tolist():
                keep[index] &= mass < s.top_p - 1e-9
                mass += float(probs[index])
        if s.min_p:
            probs = torch.softmax(scaled.masked_fill(~keep, -torch.inf), 0)
            keep &= probs >= s.min_p * probs.max()
        want = torch.softmax(scaled.masked_fill(~keep, -torch.inf), 0).float()
        assert int((got[row] > 0).sum()) == pytest.approx(int((want > 0).sum()), abs=1)
        assert torch.allclose(got[row], want, atol=2e-4), s


def test_choose_never_takes_a_weightless_id() -> None:
    weights = torch.tensor([[0.0, 1.0, 0.0, 2.0, 0.0]] * 4)
    assert choose(weights, [0.0, 0.33, 0.34, 1.0 - 2**-53]).tolist() == [1, 1, 3, 3]


def test_noise_depends_on_seed_position_and_purpose_alone() -> None:
    values = {
        noise.uniform(seed, position, purpose)
        for seed in (0, 1, 2**63, 2**64 - 1)
        for position in range(50)
        for purpose in (noise.DRAFT, noise.ACCEPT, noise.CHOOSE)
    }
    assert len(values) == 4 * 50 * 3
    assert all(0 <= value < 1 for value in values)
    sample = torch.tensor([noise.uniform(7, i, noise.CHOOSE) for i in range(20_000)])
    assert float(sample.mean()) == pytest.approx(0.5, abs=0.0082)
    assert float(sample.var()) == pytest.approx(1 / 12, abs=0.003)
