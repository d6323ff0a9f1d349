"""A real tritonserver that serves a toy whose every token is known, built and started by the CLI itself.

The toy is a bigram model over bytes: what follows a byte depends on that byte alone.

====== =====================================================================
prompt goes on with
====== =====================================================================
L      xyzxyzxyz... without end
E      the four bytes of one emoji, a lone 0xFF, ``a``, end
P      three bytes of a four-byte character, end
p      ``qrScde``, end
====== =====================================================================
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import toys

ROOT = Path(__file__).resolve().parents[2]
END = 257  # of the byte tokenizer
MAX_SEQ_LEN = 4096
DRAFT_LEN = 4
EMOJI = "\U0001f600"
CHAINS = ("Lx", "xyz", "zx", f"E{EMOJI}", "pqrScde")


def chain() -> dict[int, int]:
    """Byte -> the byte after it, for every byte that has one; the others are followed by END."""
    words = [word.encode() for word in CHAINS]
    words += [EMOJI.encode()[-1:] + b"\xffa", b"P\xf1\x8f\x88"]
    return {a: b for word in words for a, b in itertools.pairwise(word)}


def after(prompt: str, tokens: int) -> list[int]:
    """What the toy generates greedily: at most ``tokens`` ids, the end id included."""
    following, ids = chain(), list(prompt.encode())
    for _ in range(tokens):
        ids.append(following.get(ids[-1], END))
        if ids[-1] == END:
            break
    return ids[len(prompt.encode()) :]


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


@dataclass(frozen=True)
class Toy:
    """A built spec in a folder of its own, and the ports it will be served at."""

    folder: Path
    http_port: int
    grpc_port: int
    metrics_port: int

    @property
    def spec(self) -> Path:
        return self.folder / "toy.yaml"

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def grpc(self) -> str:
        return f"grpc://127.0.0.1:{self.grpc_port}"

    @property
    def metrics(self) -> str:
        return f"http://127.0.0.1:{self.metrics_port}/metrics"

    @property
    def env(self) -> dict[str, str]:
        ours = {"HOME": str(self.folder), "TRTSPEC_CACHE": str(self.folder / "cache"), "PYTHONPATH": str(ROOT)}
        return {**os.environ, **ours, "OMP_NUM_THREADS": "1"}

    def run(self, *words: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """A trtspec command, in the toy's folder."""
        return subprocess.run(
            argv(*words), cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=timeout, check=False
        )

    def popen(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            argv(*words), cwd=self.folder, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def record(self) -> dict[str, Any] | None:
        found = list((self.folder / "cache" / "servers").glob("*/record.json"))
        return json.loads(found[0].read_text()) if found else None


def argv(*words: str) -> list[str]:
    return [sys.executable, "-m", "trtspec", *words]


def build(folder: Path, **limits: int) -> Toy:
    """The toy's checkpoint, its spec, and all that `trtspec build` makes of them."""
    toys.bigram_checkpoint(
        folder / "model",
        toys.chain_table(258, {**dict.fromkeys(range(258), END), **chain()}),
        end_ids=[END],
        max_positions=8192,
        tokenizer=False,
    )
    toys.byte_tokenizer(folder / "model", add_begin=False)
    toy = Toy(folder, *free_ports(3))
    toy.spec.write_text(json.dumps(spec_of(toy, limits), indent=1))
    done = toy.run("build", "toy.yaml")
    assert done.returncode == 0, done.stderr
    return toy


def spec_of(toy: Toy, limits: Mapping[str, int]) -> dict[str, Any]:
    return {
        "name": "toy",
        "runtime": "reference",
        "target": {"model": "./model", "dtype": "float32"},
        "speculation": {"method": "ngram", "max_draft_len": DRAFT_LEN},
        "limits": {"max_batch_size": 8, "max_seq_len": MAX_SEQ_LEN, "kv_tokens": 8 * MAX_SEQ_LEN, **limits},
        "routes": {"code": {"kind": "code"}, "creative": {"kind": "creative", "speculation": "never"}},
        "serving": {
            "http_port": toy.http_port, "grpc_port": toy.grpc_port, "metrics_port": toy.metrics_port,
        },
        "reference": {"threads": 1, "compile": "off"},
    }  # fmt: skip


def serve(toy: Toy) -> dict[str, Any]:
    """Starts it detached; what `serve --detach --json` printed."""
    done = toy.run("serve", "toy.yaml", "--detach", "--json")
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def stop(toy: Toy) -> None:
    done = toy.run("stop", "toy.yaml")
    assert done.returncode == 0, done.stderr


def left_behind(toy: Toy) -> list[str]:
    """Command lines of processes that still serve this toy, and its regions of shared memory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(toy.folder) in line and ("triton" in line or "trtspec serve" in line):
                found.append(line)
    return found


def kill(pids: Sequence[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
