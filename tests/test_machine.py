"""What this machine has: real files where it has them, small stand-ins on PATH where it has not."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from trtspec import machine


def _tool(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    tool = folder / name
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    return tool


def test_gpus_as_nvidia_smi_lists_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _tool(tmp_path / "bin", "nvidia-smi", "echo 'NVIDIA H100 80GB HBM3, 81559, 9.0'; echo 'NVIDIA L4, 23034, 8.9'")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    first, second = machine.gpus()
    assert first == machine.Gpu("NVIDIA H100 80GB HBM3", 81559 << 20, "9.0")
    assert second.compute == "8.9"


def test_a_driver_that_fails_lists_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _tool(tmp_path / "bin", "nvidia-smi", "echo 'NVIDIA-SMI has failed, 1, 2'; exit 9")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert machine.gpus() == ()


def test_without_nvidia_smi_there_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.gpus() == ()
    assert machine.read_machine(tmp_path).accelerated is False


def test_the_compiler_that_the_user_names_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = _tool(tmp_path / "bin", "my-c++", "echo mine 3.1")
    monkeypatch.setenv("CXX", str(tool))
    assert machine.compiler() == str(tool)
    assert machine.compiler_fingerprint(str(tool)).startswith("mine 3.1\n")
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.compiler() is None


@pytest.mark.parametrize(
    ("content", "expected"), [("123456\n", 123456), ("max\n", None), ("9223372036854771712\n", None), (None, None)]
)
def test_a_control_groups_limit(tmp_path: Path, content: str | None, expected: int | None) -> None:
    file = tmp_path / "memory.max"
    if content is not None:
        file.write_text(content)
    assert machine.first_number([str(tmp_path / "absent"), str(file)]) == expected


def test_memory_is_never_more_free_than_there_is() -> None:
    total, free = machine.memory_bytes(), machine.memory_free_bytes()
    assert total is not None and free is not None
    assert 0 < free <= total


def test_disk_is_looked_at_where_the_folder_will_be(tmp_path: Path) -> None:
    free = machine.disk_free_bytes(tmp_path / "not" / "yet" / "there")
    assert free > 0


def test_a_port_in_use_is_seen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert machine.busy("127.0.0.1", port)
        facts = machine.read_machine(Path("/"), {port: "127.0.0.1"})
        assert facts.busy_ports == frozenset({port})
    assert not machine.busy("127.0.0.1", port)


def test_versions_without_importing() -> None:
    assert machine.version("click") is not None
    assert machine.version("no-such-package-anywhere") is None


def test_a_server_on_path_is_found_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = _tool(tmp_path / "bin", "tritonserver", "exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert machine.tritonserver() == server


def test_an_address_of_another_machine_is_foreign(tmp_path: Path) -> None:
    assert machine.read_machine(tmp_path, {1: "192.0.2.1"}).foreign_hosts == {"192.0.2.1"}  # TEST-NET-1, RFC 5737
    assert machine.read_machine(tmp_path, {1: "a..b"}).foreign_hosts == {"a..b"}
    assert machine.read_machine(tmp_path, {1: "127.0.0.1"}).foreign_hosts == frozenset()
