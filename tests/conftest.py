"""What every test gets: a home of its own, no network but the loopback, few threads."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

THREADS = "2"
NOWHERE = "http://127.0.0.1:9"  # the discard port: a test that wants a stand-in for hub or index names its own
_connect = socket.socket.connect

os.environ.update(
    OMP_NUM_THREADS=THREADS,
    GOMP_SPINCOUNT="300",  # as `trtspec run` and `serve` set it
    MKL_NUM_THREADS=THREADS,
    OPENBLAS_NUM_THREADS=THREADS,
    TOKENIZERS_PARALLELISM="false",
    HF_ENDPOINT=NOWHERE,
    HF_HUB_DISABLE_TELEMETRY="1",
    PIP_INDEX_URL=NOWHERE,
    PIP_RETRIES="0",
)


def _local_connect(self: socket.socket, address: Any) -> None:
    host = address[0] if isinstance(address, tuple) else "localhost"
    if self.family != socket.AF_UNIX and host not in ("127.0.0.1", "localhost", "::1"):
        raise AssertionError(f"a test tried to reach {host}: only the loopback is open")
    _connect(self, address)


@pytest.fixture(autouse=True)
def _at_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HF_HOME", "HF_TOKEN", "TRTSPEC_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(socket.socket, "connect", _local_connect)
    monkeypatch.setattr(Path, "home", lambda: home)
