"""What this machine has, read from the system. Nothing here is needed to import; everything may be absent."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trtspec import process

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_CGROUP_USAGE = ("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes")


@dataclass(frozen=True)
class Gpu:
    name: str
    memory_bytes: int
    free_bytes: int
    compute: str  # "9.0"


@dataclass(frozen=True)
class Machine:
    """Bytes and counts; None where the system does not tell."""

    cpus: int
    cpu_flags: frozenset[str]
    memory_bytes: int | None
    memory_free_bytes: int | None
    gpus: tuple[Gpu, ...] = ()
    tensorrt_llm: str | None = None  # its version
    compiler: str | None = None  # path of a C++ compiler
    packages: dict[str, str | None] = field(default_factory=dict)

    @property
    def accelerated(self) -> bool:
        """TensorRT-LLM and a GPU are here."""
        return bool(self.gpus) and self.tensorrt_llm is not None


def read_machine() -> Machine:
    return Machine(
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        cpu_flags=cpu_flags(),
        memory_bytes=memory_bytes(),
        memory_free_bytes=memory_free_bytes(),
        gpus=gpus(),
        tensorrt_llm=version("tensorrt_llm"),
        compiler=compiler(),
    )


def version(package: str) -> str | None:
    """Of an installed distribution, without importing it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def cpu_flags() -> frozenset[str]:
    for line in _lines(Path("/proc/cpuinfo")):
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def memory_bytes() -> int | None:
    """Of the machine, or of the control group that holds us when that is less."""
    return _least(_meminfo("MemTotal"), _first_number(_CGROUP_LIMITS))


def memory_free_bytes() -> int | None:
    limit, used = _first_number(_CGROUP_LIMITS), _first_number(_CGROUP_USAGE)
    left = None if limit is None or used is None else max(0, limit - used)
    return _least(_meminfo("MemAvailable"), left)


def disk_free_bytes(path: Path) -> int:
    """At the nearest parent that exists."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def compiler() -> str | None:
    names = [name for name in (os.environ.get("CXX"), "g++", "c++", "clang++") if name]
    return next((path for name in names if (path := shutil.which(name)) is not None), None)


def gpus() -> tuple[Gpu, ...]:
    """What nvidia-smi lists; none where it is absent or fails."""
    if shutil.which("nvidia-smi") is None:
        return ()
    query = "name,memory.total,memory.free,compute_cap"
    lines = output_of(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"])
    return tuple(_gpu(line) for line in lines if line.count(",") == query.count(","))


def _gpu(line: str) -> Gpu:
    name, total, free, compute = (part.strip() for part in line.split(","))
    return Gpu(name, int(total) << 20, int(free) << 20, compute)


def output_of(argv: Sequence[str], timeout: float = 20.0) -> list[str]:
    """The lines a short command prints; none when it fails."""
    with tempfile.TemporaryDirectory() as folder:
        done = process.run(argv, log=Path(folder) / "log", timeout=timeout)
        return done.tail(200)[1:] if done.ok else []


def fingerprint_of_compiler(path: str, source: Path) -> str:
    """Of all that a library compiled here from ``source`` depends on: with -march=native also the CPU."""
    digest = hashlib.sha256(source.read_bytes())
    digest.update("\n".join(output_of([path, "--version"])).encode())
    digest.update(" ".join(sorted(cpu_flags())).encode())
    digest.update(platform.machine().encode())
    return digest.hexdigest()


def libpython() -> Path | None:
    """The shared library of this interpreter, which Triton's Python stub links; None where it was built without."""
    names = {sysconfig.get_config_var(name) for name in ("INSTSONAME", "LDLIBRARY")}
    folders = {sysconfig.get_config_var("LIBDIR"), str(Path(sys.base_prefix) / "lib")}
    candidates = (Path(folder) / name for folder in folders if folder for name in names if name and ".so" in name)
    return next((path for path in candidates if path.exists()), None)


def tritonserver() -> Path | None:
    """The server's executable: on PATH, in NVIDIA's container, or in the nvidia-pytriton wheel."""
    found = shutil.which("tritonserver")
    spec = importlib.util.find_spec("pytriton")
    folders = [Path("/opt/tritonserver/bin")]
    folders += [Path(place) / "tritonserver" / "bin" for place in (spec and spec.submodule_search_locations) or ()]
    paths = ([Path(found)] if found else []) + [folder / "tritonserver" for folder in folders]
    return next((path for path in paths if path.is_file()), None)


def python_stub() -> Path | None:
    """The wheel's Triton stub for this Python's minor version."""
    spec = importlib.util.find_spec("pytriton")
    for place in (spec and spec.submodule_search_locations) or ():
        minor = f"{sys.version_info.major}.{sys.version_info.minor}"
        stub = Path(place) / "tritonserver" / "python_backend_stubs" / minor / "triton_python_backend_stub"
        if stub.is_file():
            return stub
    return None


def busy(host: str, port: int) -> bool:
    """Whether something listens there already."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
    return False


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _meminfo(name: str) -> int | None:
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    return None


def _first_number(paths: Sequence[str]) -> int | None:
    """Of the first file that holds one; "max" and the kernel's huge default mean no limit."""
    for path in paths:
        text = "".join(_lines(Path(path))).strip()
        if text.isdigit() and int(text) < 1 << 60:
            return int(text)
    return None


def _least(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)


Busy = Callable[[str, int], bool]
