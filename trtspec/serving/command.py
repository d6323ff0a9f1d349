"""The command line and the environment of a tritonserver. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trtspec.repository.interface import BLS_THREADS, BLS_THREADS_SERVED
from trtspec.runtime import openmp
from trtspec.serving.endpoints import Endpoints
from trtspec.serving.locate import Installation

DRAIN_SECONDS = 8  # requests in flight may finish before the server exits


def server_argv(installation: Installation, model_repo: Path, at: Endpoints, shared_memory: str) -> list[str]:
    """``shared_memory``: what the names of the server's regions under /dev/shm begin with."""
    backends = [] if installation.backends is None else [f"--backend-directory={installation.backends}"]
    return [
        str(installation.server),
        f"--model-repository={model_repo}",
        *backends,
        f"--backend-config=python,shm-region-prefix-name={shared_memory}",
        f"--backend-config=python,thread-pool-size={BLS_THREADS_SERVED}",
        "--disable-auto-complete-config",
        "--model-control-mode=none",
        "--exit-on-error=true",
        "--strict-readiness=true",
        f"--exit-timeout-secs={DRAIN_SECONDS}",
        f"--http-address={at.host}",
        f"--http-port={at.http_port}",
        f"--grpc-address={at.host}",
        f"--grpc-port={at.grpc_port}",
        f"--metrics-address={at.host}",
        f"--metrics-port={at.metrics_port}",
        "--allow-gpu-metrics=false",
        "--log-format=ISO8601",
    ]


def server_env(installation: Installation, given: Mapping[str, str]) -> dict[str, str]:
    """``given`` is the user's environment: what is set there stays."""
    ours = {
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
    }
    added = {name: value for name, value in ours.items() if name not in given}
    return {**added, **openmp.chosen(given), BLS_THREADS: str(BLS_THREADS_SERVED), **installation.env}
