"""The guards of conftest.py hold."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest


def test_home_is_a_temporary_folder(tmp_path: Path) -> None:
    assert Path.home() == Path("~").expanduser()
    assert list(Path.home().iterdir()) == []


def test_only_the_loopback_is_open() -> None:
    with socket.socket() as outside, pytest.raises(AssertionError, match=r"192\.0\.2\.1"):
        outside.connect(("192.0.2.1", 80))
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as inside:
        assert inside.getpeername() == server.getsockname()
