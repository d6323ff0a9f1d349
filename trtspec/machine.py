"""What this machine has, read from the system. Nothing here is needed to import; everything may be absent."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trtspec import process
from trtspec.check_facts import MachineFacts

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_CGROUP_USAGE = ("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes")


@dataclass(frozen=True)
class Gpu:
    name: str
    memory_bytes: int
    compute: str  # capability, "9.0"


def read_machine(engines: Path, ports: Mapping[int, str] | None = None) -> MachineFacts:
    """``engines``: where the disk is looked at. ``ports``: port -> host, to see which are taken."""
    cards = gpus()
    return MachineFacts(
        memory_bytes=memory_free_bytes(),
        disk_free_bytes=disk_free_bytes(engines),
        compiler=compiler(),
        gpus=cards,
        accelerated=bool(cards) and version("tensorrt_llm") is not None,
        busy_ports=frozenset(port for port, host in (ports or {}).items() if busy(host, port)),
        foreign_hosts=frozenset(host for host in set((ports or {}).values()) if busy(host, 0)),
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
    return _least(_meminfo("MemTotal") or _physical(), first_number(_CGROUP_LIMITS))


def memory_free_bytes() -> int | None:
    limit, used = first_number(_CGROUP_LIMITS), first_number(_CGROUP_USAGE)
    left = None if limit is None or used is None else max(0, limit - used)
    return _least(_meminfo("MemAvailable") or _physical(), left)


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
    query = "name,memory.total,compute_cap"
    lines = output_of(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"])
    return tuple(_gpu(line) for line in lines if line.count(",") == query.count(","))


def _gpu(line: str) -> Gpu:
    name, total, compute = (part.strip() for part in line.split(","))
    return Gpu(name, int(total) << 20, compute)


def output_of(argv: Sequence[str], timeout: float = 20.0) -> list[str]:
    """The lines a short command prints; none when it fails."""
    with tempfile.TemporaryDirectory() as folder:
        done = process.run(argv, log=Path(folder) / "log", timeout=timeout)
        return done.tail(200)[1:] if done.ok else []


def compiler_fingerprint(path: str) -> str:
    """Of the compiler's version and, because of -march=native, the CPU."""
    return "\n".join([*output_of([path, "--version"]), platform.machine(), *sorted(cpu_flags())])


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
    """Whether something listens there already. Port 0 is any free one: busy where the host is not this machine's."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), port))
        except (OSError, UnicodeError):  # UnicodeError: no name of a host
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


def _physical() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def first_number(paths: Sequence[str]) -> int | None:
    """Of the first file that holds one; "max" and the kernel's huge default mean no limit."""
    for path in paths:
        text = "".join(_lines(Path(path))).strip()
        if text.isdigit() and int(text) < 1 << 60:
            return int(text)
    return None


def _least(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)
