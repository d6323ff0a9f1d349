"""Total speed of concurrent plain streams through the server against one stream. See bench_streams."""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from demo import free_ports

from trtspec.serving.client import RunningServer, connect, front_of

PROMPTS = [
    "Explain what a hash table is.",
    "Describe the water cycle to a child.",
    "Why do cats purr?",
    "Write about a day at the sea.",
    "What is inflation, in simple words?",
    "How does a bicycle stay upright?",
    "Tell me about the history of paper.",
    "What makes bread rise?",
]
TOKENS = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/bench_streams"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-o", "--out", type=Path)
    args = parser.parse_args()
    spec = _spec(args.folder)
    places = ["--engines", str(args.folder / "engines"), "--model-repo", str(args.folder / "model_repo")]
    _trtspec("build", str(spec), *places)
    server = json.loads(_trtspec("serve", str(spec), *places, "--detach", "--json"))
    try:
        result = measure(connect(server["grpc"]), connect(server["http"]), args.rounds)
    finally:
        _trtspec("stop", str(spec))
    print(json.dumps(result, indent=2))
    left = result["with_a_ninth_that_leaves"]
    if left["same_text"] != left["of"] or left["active_after"] or left["kv_tokens_used_after"]:
        raise SystemExit("the ninth stream's leaving was felt")
    if args.out is not None:
        args.out.write_text(json.dumps(result, indent=2) + "\n")


def _trtspec(*words: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "trtspec", *words], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def _spec(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    spec = folder / "spec.yaml"
    spec.unlink(missing_ok=True)
    _trtspec("init", "--template", "cpu-demo", "-o", str(spec))
    text = spec.read_text()
    for key, port in zip(("http_port", "grpc_port", "metrics_port"), free_ports(3), strict=True):
        text = re.sub(rf"\b{key}: *\d+", f"{key}: {port}", text)
    spec.write_text(text)
    return spec


def measure(grpc: RunningServer, http: RunningServer, rounds: int) -> dict[str, Any]:
    model = front_of(grpc, None)
    streams(grpc, model, 2)  # warm-up
    one, eight = [], []
    for _ in range(rounds):
        one.append(streams(grpc, model, 1)[0])
        eight.append(streams(grpc, model, 8)[0])
    alone = [streams(grpc, model, 1, first=i)[1][0] for i in range(8)]
    _, together = streams(grpc, model, 8, leaver=True)
    deadline = time.monotonic() + 5
    while http.command(model, "status")["active"] and time.monotonic() < deadline:
        time.sleep(0.05)
    status = http.command(model, "status")
    return {
        "tokens_per_s": {"1": statistics.median(one), "8": statistics.median(eight)},
        "ratio": statistics.median(b / a for a, b in zip(one, eight, strict=True)),
        "all": {"1": one, "8": eight},
        "with_a_ninth_that_leaves": {
            "same_text": sum(a == b for a, b in zip(alone, together, strict=True)),
            "of": len(alone),
            "active_after": status["active"],
            "kv_tokens_used_after": status["kv_tokens_used"],
        },
    }


def streams(
    server: RunningServer, model: str, count: int, first: int = 0, leaver: bool = False
) -> tuple[float, list[str]]:
    """Total tokens a second from the start of all streams to the end of the last, and each stream's text."""
    texts = [""] * count
    tokens = [0] * count

    def ask(index: int) -> None:
        for outputs in server.stream(model, _fields(PROMPTS[(first + index) % 8])):
            texts[index] += "".join(outputs.get("text_output", []))
            tokens[index] += len(outputs.get("output_ids", []))

    def leave() -> None:
        stream = server.stream(model, _fields("Count from one to a thousand."))
        next(stream)
        stream.close()

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(count)]
    threads += [threading.Thread(target=leave)] if leaver else []
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    if not leaver and tokens != [TOKENS] * count:
        raise SystemExit(f"streams ended early: {tokens}")
    return sum(tokens) / seconds, texts


def _fields(prompt: str) -> dict[str, Any]:
    return {
        "messages": json.dumps([{"role": "user", "content": prompt}]),
        "max_tokens": TOKENS,
        "min_tokens": TOKENS,
        "speculation": "off",
        "temperature": 0.0,
    }


if __name__ == "__main__":
    main()
