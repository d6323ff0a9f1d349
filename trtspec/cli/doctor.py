"""``trtspec doctor``: what this machine has, what it lacks, and what to do about it."""

from __future__ import annotations

import json
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import click

State = Literal["ok", "lacks", "warn"]
PORTS = (8000, 8001, 8002)
INSTALL = "pip install 'trtspec[cpu]'"


@dataclass(frozen=True)
class Item:
    """``needed_for``: what does not work without it."""

    name: str
    state: State
    message: str
    needed_for: str
    hint: str | None = None


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(as_json: bool) -> None:
    """What this machine has and lacks, and what to do about it."""
    items = [*_python(), *_triton(), *_compute(), *_gpu(), *_ports()]
    if as_json:
        click.echo(json.dumps({"ok": all(i.state != "lacks" for i in items), "items": [asdict(i) for i in items]}))
        return
    for item in items:
        click.echo(f"{item.state:5}  {item.name}: {item.message}")
        if item.hint:
            click.echo(f"       {item.hint}")


def _python() -> Iterator[Item]:
    from trtspec.machine import version

    yield Item("python", "ok", f"{platform.python_version()} at {sys.executable}", "everything")
    uses = {"torch": "run, serve", "tokenizers": "run, serve", "jinja2": "chat templates", "tritonclient": "generate"}
    for package, use in uses.items():
        found = version(package)
        state: State = "ok" if found else "lacks"
        yield Item(package, state, found or "not installed", use, None if found else INSTALL)
    yield _numpy(version("numpy"))


def _numpy(found: str | None) -> Item:
    if found is None:
        return Item("numpy", "lacks", "not installed", "build, run, serve", INSTALL)
    if found.startswith("1."):
        return Item("numpy", "ok", found, "build, run, serve")
    hint = "pip install 'numpy<2': the server's Python stub ends at the first text tensor with numpy 2"
    return Item("numpy", "lacks", f"{found} is too new for Triton 2.51", "serve", hint)


def _triton() -> Iterator[Item]:
    from trtspec.machine import libpython, python_stub, tritonserver

    server = tritonserver()
    hint = f"{INSTALL} (x86-64 Linux), or run inside NVIDIA's Triton container"
    yield Item("tritonserver", *_found(server), "serve", None if server else hint)
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = python_stub()
    if stub is None:
        hint = "use a Python that the nvidia-pytriton wheel has a stub for (3.8 to 3.13)"
        yield Item("python stub", "lacks", f"no Triton stub for Python {minor}", "serve", hint)
    else:
        yield Item("python stub", "ok", str(stub), "serve")
    library = libpython()
    if library is None:
        hint = "use a Python built with --enable-shared (Debian: apt install libpython3-dev; conda and uv have it)"
        yield Item("libpython", "lacks", f"libpython{minor}.so is in no folder of this interpreter", "serve", hint)
    else:
        yield Item("libpython", "ok", str(library), "serve")


def _compute() -> Iterator[Item]:
    from trtspec import machine
    from trtspec.memory import human_bytes

    compiler = machine.compiler()
    hint = None if compiler else "install g++ or clang++; without it torch's own kernels are used"
    yield Item("c++ compiler", "ok" if compiler else "warn", compiler or "none on PATH", "native kernels", hint)
    flags = machine.cpu_flags()
    for name, flag in (("AVX2", "avx2"), ("AVX-512", "avx512f"), ("AVX-512 BF16", "avx512_bf16"), ("AMX", "amx_bf16")):
        yield Item(name, "ok" if flag in flags else "warn", "yes" if flag in flags else "no", "speed on the CPU")
    total, free = machine.memory_bytes(), machine.memory_free_bytes()
    if total is None or free is None:
        yield Item("memory", "warn", "this system does not tell", "run, serve")
    else:
        yield Item("memory", "ok", f"{human_bytes(free)} of {human_bytes(total)} free", "run, serve")
    disk = machine.disk_free_bytes(Path.cwd())
    state: State = "ok" if disk > 2 << 30 else "warn"
    yield Item("disk", state, f"{human_bytes(disk)} free in {Path.cwd()}", "build")


def _gpu() -> Iterator[Item]:
    from trtspec.machine import gpus, version

    cards = gpus()
    shown = ", ".join(card.name for card in cards) or "none: runtime reference uses the CPU"
    yield Item("gpu", "ok" if cards else "warn", shown, "runtimes tensorrt and pytorch")
    release = version("tensorrt_llm")
    yield Item("tensorrt-llm", "ok" if release else "warn", release or "not installed", "runtimes tensorrt and pytorch")
    docker = shutil.which("docker")
    yield Item("docker", "ok" if docker else "warn", docker or "not on PATH", "serve --container")


def _ports() -> Iterator[Item]:
    from trtspec.machine import busy

    for port in PORTS:
        taken = busy("127.0.0.1", port)
        hint = "stop what listens there, or choose another in the spec's serving section" if taken else None
        yield Item(f"port {port}", "warn" if taken else "ok", "in use" if taken else "free", "serve", hint)


def _found(path: Path | None) -> tuple[State, str]:
    return ("lacks", "not found") if path is None else ("ok", str(path))
