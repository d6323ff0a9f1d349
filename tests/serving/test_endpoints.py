from __future__ import annotations

import os
from pathlib import Path

import pytest

from trtspec.errors import ServeError
from trtspec.serving import record as records
from trtspec.serving import shared_memory
from trtspec.serving.client import connect
from trtspec.serving.command import server_argv, server_env
from trtspec.serving.document import Transcript, the_front
from trtspec.serving.endpoints import Endpoints
from trtspec.serving.launch import telling
from trtspec.serving.locate import Installation
from trtspec.serving.record import Record

AT = Endpoints("127.0.0.1", 18000, 18001, 18002)


def test_everything_listens_where_the_spec_says() -> None:
    argv = server_argv(Installation(Path("/bin/tritonserver"), Path("/b")), Path("/repo"), AT, "trtspec-x-")
    for flag in (
        "--http-address=127.0.0.1",
        "--grpc-address=127.0.0.1",
        "--metrics-address=127.0.0.1",
        "--http-port=18000",
        "--grpc-port=18001",
        "--metrics-port=18002",
        "--model-repository=/repo",
        "--backend-directory=/b",
        "--disable-auto-complete-config",
        "--model-control-mode=none",
        "--backend-config=python,shm-region-prefix-name=trtspec-x-",
    ):
        assert flag in argv
    assert "--backend-directory=/b" not in server_argv(Installation(Path("/t")), Path("/repo"), AT, "trtspec-x-")


def test_the_users_environment_wins() -> None:
    assert server_env(Installation(Path("/t"), env={"LD_LIBRARY_PATH": "/l"}), {"OMP_WAIT_POLICY": "ACTIVE"}) == {
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        "TRTSPEC_BLS_THREADS": "128",
        "LD_LIBRARY_PATH": "/l",
    }


@pytest.mark.parametrize("name", ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY"])
def test_waiting_threads_spin_shortly_unless_the_user_decides(name: str) -> None:
    assert server_env(Installation(Path("/t")), {})["GOMP_SPINCOUNT"] == "300"
    assert "GOMP_SPINCOUNT" not in server_env(Installation(Path("/t")), {name: "1"})


def test_urls_are_ones_a_client_can_use() -> None:
    assert Endpoints("0.0.0.0", 1, 2, 3).http == "http://127.0.0.1:1"
    assert Endpoints("::1", 1, 2, 3).grpc == "grpc://[::1]:2"


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "https://x:1", "grpc:8001", "http://"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ServeError, match="no URL of a server"):
        connect(url)


def test_the_only_front_is_meant_and_several_are_named() -> None:
    assert the_front(["a"], "u") == "a"
    with pytest.raises(ServeError, match=r"serves 2 models that can be asked \(a, b\)"):
        the_front(["b", "a"], "u")
    with pytest.raises(ServeError, match="none"):
        the_front([], "u")


def test_a_transcript_takes_bare_values_and_lists() -> None:
    transcript = Transcript()
    assert transcript.push({"text_output": "a", "output_ids": 5}) == "a"
    assert transcript.push({"text_output": ["bc"], "output_ids": [6, 7], "model_name": "x"}) == "bc"
    assert (transcript.text, transcript.ids) == ("abc", [5, 6, 7])
    with pytest.raises(ServeError, match="without an end"):
        transcript.document()


def record(**changes: object) -> Record:
    fields = {
        "pid": os.getpid(), "born": records.birth(os.getpid()) or "", "name": "t", "spec": "/t.yaml",
        "http": "http://127.0.0.1:1", "grpc": "grpc://127.0.0.1:2", "metrics": "m", "log": "l",
        "shared_memory": "trtspec-none-",
    }  # fmt: skip
    return Record(**{**fields, **changes})  # type: ignore[arg-type]


def test_records_are_found_and_forgotten() -> None:
    records.save(record())
    assert records.load("http://127.0.0.1:1") == record()
    assert records.everyone() == [record()]
    assert record().supervised
    assert not record(born="1").supervised  # the pid was given to another process
    records.forget("http://127.0.0.1:1")
    records.forget("http://127.0.0.1:1")
    assert records.everyone() == []


def test_a_damaged_record_is_no_record() -> None:
    records.save(record())
    (records.folder_of("http://127.0.0.1:1") / "record.json").write_text("{")
    assert records.everyone() == []


def test_only_our_own_regions_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "SHM", tmp_path)
    for name in ("trtspec-a-1", "trtspec-b-1", "other"):
        (tmp_path / name).touch()
    shared_memory.remove_regions("trtspec-a-")
    assert sorted(os.listdir(tmp_path)) == ["other", "trtspec-b-1"]
    with pytest.raises(ValueError, match="not ours"):
        shared_memory.remove_regions("")


def test_the_telling_lines_of_a_log() -> None:
    assert telling(["loading", "ERROR: no such thing", "bye"]) == ["ERROR: no such thing"]
    assert telling(["one", "two"]) == ["one", "two"]
