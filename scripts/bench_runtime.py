"""Plain decode speed at batch 1, and where a step's time goes. See bench_runtime."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import transformers

from trtspec.artifacts import ensure
from trtspec.checkpoints.tokenizer import load_tokenizer
from trtspec.deploy import engine_options, packed_facts
from trtspec.runtime import openmp
from trtspec.runtime.batch import Span
from trtspec.runtime.config import ModelConfig
from trtspec.runtime.core import Core
from trtspec.runtime.engine import LocalEngine, build_core
from trtspec.runtime.options import EngineOptions
from trtspec.runtime.types import EngineRequest
from trtspec.runtime.weights import load_packed
from trtspec.spec.load import load_spec
from trtspec.spec.template import template

PROMPT = "Explain in a few sentences how a compiler turns source code into machine code."
GIB = 1 << 30
THREADS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", type=Path, default=Path("engines"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("-o", "--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(THREADS)
    options = _options(args.engines)
    tokenizer = load_tokenizer(Path(options.target))
    prompt = tokenizer.encode(tokenizer.render_chat([{"role": "user", "content": PROMPT}]), False)
    arms = _arms(options, prompt, args.tokens)
    speeds: dict[str, list[float]] = {name: [] for name in arms}
    texts: dict[str, list[int]] = {}
    bandwidth = read_bandwidth()
    for round_ in range(args.rounds + 1):  # the first is a warm-up
        for name, worker in arms.items():
            speed, ids = worker.run()
            texts[name] = ids
            if round_:
                speeds[name].append(speed)
    for worker in arms.values():
        worker.close()
    result = _result(options, bandwidth, speeds, texts)
    print(_table(result))
    if args.out is not None:
        args.out.write_text(json.dumps(result, indent=2) + "\n")


def _options(engines: Path) -> EngineOptions:
    engines.mkdir(parents=True, exist_ok=True)
    spec_file = engines / "bench_runtime.yaml"
    spec_file.write_text(template("cpu-demo"))
    spec = load_spec(spec_file)
    artifacts = ensure(spec, engines, lambda text: print(text, file=sys.stderr))
    facts = packed_facts((artifacts["target"].path / "config.json").read_text())
    vocab = load_tokenizer(artifacts["target"].path).vocab_size
    return replace(engine_options(spec, facts, artifacts, vocab_size=vocab), method="none", max_draft_len=0)


Arm = Callable[[], tuple[float, list[int]]]


class Worker:
    """One arm in a process of its own, as its users would run it; idle while another arm is timed."""

    def __init__(self, make: Callable[..., Callable[[], Any]], *args: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, make, args), daemon=True)
        self._process.start()
        self._pipe.recv()  # it is ready

    def run(self) -> Any:
        self._pipe.send("run")
        return self._pipe.recv()

    def close(self) -> None:
        self._pipe.send("end")
        self._process.join()


def _work(pipe: Connection, make: Callable[..., Any], args: tuple[Any, ...]) -> None:
    torch.set_num_threads(THREADS)
    run = make(*args)
    pipe.send("ready")
    while pipe.recv() == "run":
        pipe.send(run())


def _arms(options: EngineOptions, prompt: list[int], tokens: int) -> dict[str, Worker]:
    arms = {"hugging_face": Worker(_hugging_face, options, prompt, tokens)}
    openmp.settle()  # as `trtspec run` does, for our own processes
    arms["torch"] = Worker(_ours, replace(options, compile="off"), prompt, tokens)
    if options.kernels is not None:
        arms["native"] = Worker(_ours, options, prompt, tokens)
    return arms


def _ours(options: EngineOptions, prompt: list[int], tokens: int) -> Arm:
    engine = LocalEngine.open(options)

    def run() -> tuple[float, list[int]]:
        times, ids = [], []
        for step in engine.generate(EngineRequest("bench", prompt, tokens)):
            times.append(time.perf_counter())
            ids += step.token_ids
        return (len(ids) - 1) / (times[-1] - times[0]), ids

    return run


class _Clock:
    """A transformers streamer: told of the prompt first, then of each token."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: torch.Tensor) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        pass


def _hugging_face(options: EngineOptions, prompt: list[int], tokens: int) -> Arm:
    network = hugging_face_llama(Path(options.target))
    ids = torch.tensor([prompt])

    def run() -> tuple[float, list[int]]:
        clock = _Clock()
        with torch.inference_mode():
            out = network.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=tokens,
                min_new_tokens=tokens,
                do_sample=False,
                streamer=clock,
                pad_token_id=0,
            )
        times = clock.times[1:]
        return (len(times) - 1) / (times[-1] - times[0]), out[0, len(prompt) :].tolist()

    return run


def hugging_face_llama(folder: Path) -> Any:
    """The packed checkpoint as transformers' own Llama, in the same dtype."""
    config, packed = load_packed(folder)
    settings = transformers.LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        rms_norm_eps=config.norm_eps,
        max_position_embeddings=config.max_positions,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope.theta},
        tie_word_embeddings=config.tied,
        bos_token_id=None,
        eos_token_id=None,
    )
    network = transformers.LlamaForCausalLM(settings).to(packed["embed.weight"].dtype).eval()
    network.load_state_dict(_unfused(config, packed))
    return network


def _unfused(config: ModelConfig, packed: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    sizes = [config.num_heads * config.head_dim, *[config.num_kv_heads * config.head_dim] * 2]
    state = {"model.embed_tokens.weight": packed["embed.weight"], "model.norm.weight": packed["norm.weight"]}
    state["lm_head.weight"] = packed.get("lm_head.weight", packed["embed.weight"])
    for i in range(config.num_layers):
        ours, theirs = f"layers.{i}.", f"model.layers.{i}."
        for name, part in zip("qkv", packed[f"{ours}qkv.weight"].split(sizes), strict=True):
            state[f"{theirs}self_attn.{name}_proj.weight"] = part
        gate, up = packed[f"{ours}gate_up.weight"].chunk(2)
        state |= {
            f"{theirs}self_attn.o_proj.weight": packed[f"{ours}o.weight"],
            f"{theirs}mlp.gate_proj.weight": gate,
            f"{theirs}mlp.up_proj.weight": up,
            f"{theirs}mlp.down_proj.weight": packed[f"{ours}down.weight"],
            f"{theirs}input_layernorm.weight": packed[f"{ours}attn_norm.weight"],
            f"{theirs}post_attention_layernorm.weight": packed[f"{ours}mlp_norm.weight"],
        }
    return state


def read_bandwidth() -> float:
    """Bytes a second: the median of nine reads of 1 GiB by torch's threads."""
    data = torch.ones(GIB // 4)
    seconds = []
    for _ in range(9):
        began = time.perf_counter()
        data.sum()
        seconds.append(time.perf_counter() - began)
    return GIB / statistics.median(seconds)


def _weight_bytes(folder: Path) -> int:
    """What one plain step must read: every matrix once; of an untied embedding only a row."""
    config, packed = load_packed(folder)
    unread = 0 if config.tied else packed["embed.weight"].nbytes
    return sum(tensor.nbytes for tensor in packed.values()) - unread


def _splitter(options: EngineOptions) -> Callable[[], dict[str, float]]:
    return lambda: _split(options)


def _passer(options: EngineOptions) -> Callable[[], dict[str, float]]:
    return lambda: _passes(options)


def _passes(options: EngineOptions, count: int = 40) -> dict[str, float]:
    """Milliseconds (median) of one pass over several rows behind 100 tokens and more."""
    core = build_core(options)
    shapes: dict[str, Callable[[int], list[Span]]] = {
        "1": lambda at: [Span([5], 0, at, 0)],
        "5 of one sequence": lambda at: [Span([5] * 5, 0, at, 0)],
        "8 sequences": lambda at: [Span([5], row * 256, at, 0) for row in range(8)],
    }
    medians = {}
    for name, spans in shapes.items():
        seconds = []
        for at in range(100, 105 + count):
            began = time.perf_counter()
            core.model.forward(spans(at), core.cache)
            seconds.append(time.perf_counter() - began)
        medians[name] = statistics.median(seconds[5:]) * 1e3
    return medians


def _split(options: EngineOptions, steps: int = 60) -> dict[str, float]:
    """Milliseconds a plain step spends in each operation, and in everything else."""
    core: Core = build_core(options)
    ops: Any = core.model.ops
    spent: dict[str, float] = {}

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            began = time.perf_counter()
            out = function(*args)
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - began
            return out

        return call

    names = ("linear", "logits", "attend", "add_norm", "silu_mul")
    for name in names:
        setattr(ops, name, timed(name, getattr(ops, name)))
    for at in range(10):
        core.model.forward([Span([5], 0, at, 0)], core.cache)
    spent.clear()
    began = time.perf_counter()
    for at in range(steps):
        core.model.forward([Span([5], 0, 100 + at, 0)], core.cache).argmax(-1).tolist()
    whole = time.perf_counter() - began
    split = {name: spent[name] / steps * 1e3 for name in names}
    return {**split, "rest": whole / steps * 1e3 - sum(split.values()), "step": whole / steps * 1e3}


def _result(
    options: EngineOptions, bandwidth: float, speeds: dict[str, list[float]], texts: dict[str, list[int]]
) -> dict[str, Any]:
    weights = _weight_bytes(Path(options.target))
    floor = bandwidth / weights
    base = speeds["hugging_face"]
    arms = {}
    for name, values in speeds.items():
        ratios = [value / other for value, other in zip(values, base, strict=True)]
        arms[name] = {
            "tokens_per_s": statistics.median(values),
            "all_tokens_per_s": values,
            "times_hugging_face": statistics.median(ratios),
            "share_of_floor": statistics.median(values) / floor,
            "same_ids_as_hugging_face": _agree(texts[name], texts["hugging_face"]),
        }
    variants = {"torch": replace(options, compile="off")} | ({"native": options} if options.kernels else {})
    split, passes = {}, {}
    for name, variant in variants.items():
        for kept, make in ((split, _splitter), (passes, _passer)):
            worker = Worker(make, variant)
            kept[name] = worker.run()
            worker.close()
    return {
        "machine": {
            "processor": _processor(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
        "read_bytes_per_s": bandwidth,
        "weight_bytes": weights,
        "floor_tokens_per_s": floor,
        "arms": arms,
        "step_ms": split,
        "pass_ms": passes,
        "options": asdict(options) | {"target": "SmolLM2-135M-Instruct", "kernels": options.kernels is not None},
    }


def _agree(one: list[int], other: list[int]) -> int:
    """How many leading ids are the same."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def _table(result: dict[str, Any]) -> str:
    lines = [
        f"{result['machine']['processor']}, {result['machine']['threads']} threads, "
        f"reads {result['read_bytes_per_s'] / 1e9:.1f} GB/s; {result['weight_bytes'] / 1e6:.0f} MB of weights: "
        f"at most {result['floor_tokens_per_s']:.1f} tokens/s",
        f"{'':14}{'tokens/s':>10}{'x HF':>8}{'of floor':>10}{'same ids':>10}",
    ]
    for name, arm in result["arms"].items():
        lines.append(
            f"{name:14}{arm['tokens_per_s']:10.1f}{arm['times_hugging_face']:8.2f}{arm['share_of_floor']:10.0%}"
            f"{arm['same_ids_as_hugging_face']:10d}"
        )
    for name, split in result["step_ms"].items():
        parts = ", ".join(f"{part} {value:.2f}" for part, value in split.items())
        lines.append(f"a step of {name}, in ms: {parts}")
    for name, passes in result["pass_ms"].items():
        lines.append(f"a pass of {name}, in ms: " + ", ".join(f"{rows} {ms:.1f}" for rows, ms in passes.items()))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
