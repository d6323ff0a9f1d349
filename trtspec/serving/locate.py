"""Finds a tritonserver and makes it startable: its backends with the right Python stub, and the loader's path."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trtspec import machine
from trtspec.errors import ServeError

STUB = "triton_python_backend_stub"
BACKENDS = "backends"
PYTHON_BACKEND = Path(BACKENDS) / "python"


@dataclass(frozen=True)
class Installation:
    """``env`` is added to the server's environment. ``backends``: None where the server's own are right."""

    server: Path
    backends: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)


def install(folder: Path) -> Installation:
    """The server of this machine; what it lacks is put into ``folder``. Raises ServeError naming what is missing."""
    server = machine.tritonserver()
    if server is None:
        raise ServeError(
            "no tritonserver here: neither on PATH, nor in /opt/tritonserver, nor in the nvidia-pytriton wheel",
            code="no_tritonserver",
            hint="pip install 'trtspec[cpu]', or run inside NVIDIA's Triton container",
        )
    root = server.resolve().parents[1]
    if (root / PYTHON_BACKEND / STUB).is_file():
        return Installation(server)
    if not (root / "python_backend_stubs").is_dir():
        raise ServeError(
            f"{server} has no Python backend: {root / PYTHON_BACKEND / STUB} is missing",
            code="no_python_backend",
            where=str(server),
            hint="install the server's Python backend, or put the nvidia-pytriton wheel's server first",
        )
    return Installation(server, _backends(root, folder), _environment(root))


def _backends(root: Path, folder: Path) -> Path:
    """A copy of the wheel's Python backend beside the stub of this Python's minor version."""
    stub = machine.python_stub()
    if stub is None:
        minor = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise ServeError(
            f"the nvidia-pytriton wheel has no stub for Python {minor}",
            code="no_python_stub",
            where=str(root / "python_backend_stubs"),
            hint="use one of the Python versions named by the folders there",
        )
    backends = folder / BACKENDS
    shutil.rmtree(backends, ignore_errors=True)
    shutil.copytree(root / PYTHON_BACKEND, backends / "python", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(stub, backends / "python" / STUB)
    return backends


def _environment(root: Path) -> dict[str, str]:
    """The stub finds this Python by PATH, and its libraries by LD_LIBRARY_PATH."""
    folders = [root.parents[1] / "nvidia_pytriton.libs"]
    library = machine.libpython()
    if library is not None:
        folders.append(library.parent)
    return {
        "LD_LIBRARY_PATH": _joined(map(str, folders), "LD_LIBRARY_PATH"),
        "PATH": _joined([str(Path(sys.executable).parent)], "PATH"),
    }


def _joined(first: Iterable[str], name: str) -> str:
    before = os.environ.get(name)
    return os.pathsep.join([*first, *([before] if before else [])])
