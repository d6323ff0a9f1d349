"""Plain and speculative decoding of fixed prompts with a target and a draft. See bench_pair."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from trtspec.artifacts import ensure
from trtspec.checkpoints.tokenizer import load_tokenizer
from trtspec.deploy import engine_options, packed_facts
from trtspec.measure.divergence import explain, measure_floor
from trtspec.runtime.engine import LocalEngine
from trtspec.runtime.options import EngineOptions
from trtspec.runtime.score import score
from trtspec.runtime.types import EngineRequest, Step
from trtspec.spec.load import load_spec

PROMPTS = Path(__file__).with_name("bench_pair_prompts.jsonl")
SPEC = """\
name: pair
runtime: reference
target: {{model: {target}, dtype: bfloat16}}
speculation:
  method: draft_target
  max_draft_len: {draft_len}
  draft: {{model: {draft}, dtype: bfloat16}}
limits: {{max_batch_size: 1, max_seq_len: 2048, kv_tokens: 2048}}
reference: {{compile: {compile}}}
"""


@dataclass(frozen=True)
class Run:
    ids: list[int]
    seconds: float  # from the first token to the last
    steps: list[Step]

    @property
    def speed(self) -> float:
        return (len(self.ids) - len(self.steps[0].token_ids)) / self.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path, required=True)
    parser.add_argument("--engines", type=Path, default=Path("engines"))
    parser.add_argument("--draft-len", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--compile", choices=("auto", "off"), default="auto")
    parser.add_argument("-o", "--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(2)
    options = _options(args)
    tokenizer = load_tokenizer(Path(options.target))
    engine = LocalEngine.open(options)
    rows = []
    for number, line in enumerate(PROMPTS.read_text().splitlines()):
        case = json.loads(line)
        prompt = tokenizer.encode(tokenizer.render_chat(case["messages"]), False)
        order = (0, args.draft_len) if number % 2 else (args.draft_len, 0)
        runs = {k: _run(engine, prompt, args.tokens, k, frozenset(tokenizer.end_ids)) for k in order}
        rows.append(_row(case, prompt, runs[0], runs[args.draft_len]))
        print(_line(rows[-1]), flush=True)
    engine.close()
    _explain(rows, options, args.draft_len)
    result = {"machine": _machine(), "draft_len": args.draft_len, "compile": args.compile, "kinds": _kinds(rows)}
    for kind, summary in result["kinds"].items():
        print(f"{kind:6} {summary}")
    if args.out is not None:
        kept = [{k: v for k, v in row.items() if not k.startswith("_")} for row in rows]
        args.out.write_text(json.dumps({**result, "prompts": kept}, indent=2) + "\n")
    if any(row["divergence"] is not None and not row["divergence"]["explained"] for row in rows):
        sys.exit(1)


def _options(args: argparse.Namespace) -> EngineOptions:
    args.engines.mkdir(parents=True, exist_ok=True)
    spec_file = args.engines / "bench_pair.yaml"
    target, draft = args.target.resolve(), args.draft.resolve()
    spec_file.write_text(SPEC.format(target=target, draft=draft, draft_len=args.draft_len, compile=args.compile))
    spec = load_spec(spec_file)
    artifacts = ensure(spec, args.engines, lambda text: print(text, file=sys.stderr))
    folder = artifacts["target"].path
    facts = packed_facts((folder / "config.json").read_text())
    return engine_options(spec, facts, artifacts, vocab_size=load_tokenizer(folder).vocab_size)


def _run(engine: LocalEngine, prompt: list[int], tokens: int, k: int, ends: frozenset[int]) -> Run:
    steps, times = [], []
    for step in engine.generate(EngineRequest("bench", prompt, tokens, end_ids=ends, max_draft_len=k)):
        steps.append(step)
        times.append(time.perf_counter())
    return Run([i for s in steps for i in s.token_ids], times[-1] - times[0], steps)


def _row(case: dict[str, Any], prompt: list[int], plain: Run, speculative: Run) -> dict[str, Any]:
    counted = [step for step in speculative.steps if not step.prefill]
    return {
        "id": case["id"],
        "kind": case["kind"],
        "tokens": len(plain.ids),
        "same_ids": plain.ids == speculative.ids,
        "divergence": None,
        "steps": len(counted),
        "emitted": sum(len(step.token_ids) for step in counted),
        "drafted": sum(step.drafted for step in counted),
        "accepted": sum(step.accepted for step in counted),
        "acceptance_length": sum(len(step.token_ids) for step in counted) / len(counted),
        "plain_tokens_per_s": plain.speed,
        "speculative_tokens_per_s": speculative.speed,
        "speed_up": speculative.speed / plain.speed,
        "_prompt": prompt,
        "_plain": plain.ids,
        "_speculative": speculative.ids,
    }


def _explain(rows: list[dict[str, Any]], options: EngineOptions, draft_len: int) -> None:
    """Only where ids differ: the noise floor over the benchmark's own texts, and each divergence held against it."""
    different = [row for row in rows if not row["same_ids"]]
    if not different:
        return
    plain = replace(options, draft=None, method="none", max_draft_len=0)

    def scorer(ids: Sequence[int], rows: int) -> NDArray[Any]:
        return score(plain, ids, rows).numpy()

    floor = measure_floor(scorer, [[*row["_prompt"], *row["_plain"]] for row in rows], draft_len)
    for row in different:
        divergence = explain(row["_prompt"], row["_plain"], row["_speculative"], scorer, floor)
        row["divergence"] = None if divergence is None else divergence.to_dict()
        print(row["id"], row["divergence"])


def _kinds(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Sums are divided, never rates averaged; of the speed-ups the median."""
    kinds = {}
    for kind in dict.fromkeys(row["kind"] for row in rows):
        own = [row for row in rows if row["kind"] == kind]
        kinds[kind] = {
            "acceptance_length": round(sum(r["emitted"] for r in own) / sum(r["steps"] for r in own), 3),
            "acceptance_rate": round(sum(r["accepted"] for r in own) / sum(r["drafted"] for r in own), 3),
            "speed_up": round(statistics.median(r["speed_up"] for r in own), 3),
        }
    return kinds


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['id']:16} {row['tokens']:4} tokens  length {row['acceptance_length']:.2f}  plain "
        f"{row['plain_tokens_per_s']:6.2f}/s  speculative {row['speculative_tokens_per_s']:6.2f}/s  "
        f"x{row['speed_up']:.2f}  {'same ids' if row['same_ids'] else 'DIFFERENT ids'}"
    )


def _machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    main()
