"""`serve`, `stop`, `status` and `generate` against a real tritonserver."""

from __future__ import annotations

import json
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.serving import toy_server
from tests.serving.toy_server import Toy
from tests.triton.asking import post
from trtspec.serving.http_client import HttpServer
from trtspec.serving.shared_memory import processes_of

SHM = Path("/dev/shm")


def regions(prefix: str) -> list[Path]:
    return list(SHM.glob(f"{prefix}*"))


def test_the_unary_front_answers_generate_or_refuses_it_in_words(served: Toy) -> None:
    """It is not decoupled: over gRPC it takes no stream."""
    for url in (served.http, served.grpc):
        done = served.run("generate", "L", "--url", url, "--model", "toy_unary", "--max-tokens", "3", "--json")
        document = json.loads(done.stdout)
        assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
        assert ("text" in document) == (done.returncode == 0)


def test_generate_over_http_and_grpc(served: Toy) -> None:
    for url in (served.http, served.grpc):
        plain = served.run("generate", "L", "--url", url, "--max-tokens", "9")
        assert (plain.returncode, plain.stdout) == (0, "xyzxyzxyz\n"), plain.stderr
        assert "route default" in plain.stderr
        document = served.run(
            "generate",
            "p",
            "--url",
            url,
            "--json",
            "--stop",
            "S",
            "--route",
            "code",
            "--seed",
            "5",
            "--speculation",
            "off",
        )
        answer = json.loads(document.stdout)
        assert (answer["text"], answer["finish_reason"], answer["route"], answer["seed"]) == ("qr", "stop", "code", 5)
        assert answer["token_ids"] == list(b"qrS")
        assert answer["usage"] == {"prompt_tokens": 1, "completion_tokens": 3}
        assert answer["speculation"]["enabled"] is False
        chat = json.loads(served.run("generate", "L", "--url", url, "--chat", "--json", "--max-tokens", "1").stdout)
        assert chat["usage"]["prompt_tokens"] == len("user:L") + 1 + len("assistant:")
        refused = served.run("generate", "L", "--url", url, "--top-p", "1.5")
        assert refused.returncode == 1
        assert "top_p must be above 0 and at most 1, not 1.5" in refused.stderr
    status = json.loads(served.run("status", "--url", served.http, "--json").stdout)
    assert status["ready"] is True
    assert status["routes"]["code"]["requests"] == 2
    assert "route never speculates" in served.run("status", "--url", served.grpc).stdout


def test_serve_says_what_is_in_the_way(served: Toy) -> None:
    again = served.run("serve", "toy.yaml", "--detach")
    assert again.returncode == 1
    assert f"already served at {served.http}" in again.stderr


def test_not_built_names_build(toy: Toy, tmp_path: Path) -> None:
    for folders in (("--model-repo", str(tmp_path / "none")), ("--engines", str(tmp_path / "none"))):
        done = toy.run("serve", "toy.yaml", *folders)
        assert done.returncode == 1
        assert "trtspec build" in done.stderr


def test_a_changed_spec_asks_for_a_build(toy: Toy) -> None:
    before = toy.spec.read_text()
    changed = json.loads(before)
    changed["routes"]["new"] = {"kind": "chat"}
    toy.spec.write_text(json.dumps(changed))
    try:
        done = toy.run("serve", "toy.yaml")
    finally:
        toy.spec.write_text(before)
    assert done.returncode == 1
    assert "trtspec build" in done.stderr


def test_a_busy_port_is_named(toy: Toy) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", toy.grpc_port))
        taken.listen()
        done = toy.run("serve", "toy.yaml")
    assert done.returncode == 1
    assert f"port {toy.grpc_port} of 127.0.0.1 is taken" in done.stderr
    assert "serving.grpc_port" in done.stderr


def test_stop_leaves_nothing_and_is_content_when_all_is_gone(toy: Toy) -> None:
    printed = toy_server.serve(toy)
    assert set(printed) == {"pid", "name", "http", "grpc", "metrics", "log"}
    assert (printed["http"], printed["grpc"]) == (toy.http, toy.grpc)
    record = toy.record()
    assert record is not None
    assert len(processes_of(record["shared_memory"])) == 3
    with ThreadPoolExecutor(1) as pool:  # a stop waits for no request longer than it may
        pool.submit(toy.run, "generate", "L", "--url", toy.http, "--max-tokens", "4000")
        began = time.monotonic()
        toy_server.stop(toy)
        assert time.monotonic() - began < 20
    assert toy_server.left_behind(toy) == []
    assert regions(record["shared_memory"]) == []
    assert toy.record() is None
    for words in (("stop",), ("stop", "toy.yaml"), ("stop", "--url", toy.http)):
        done = toy.run(*words)
        assert (done.returncode, "nothing to stop" in done.stderr) == (0, True)
    gone = toy.run("status", "--url", toy.http, "--json")
    assert gone.returncode == 1
    assert json.loads(gone.stdout)["error"]["code"] == "no_server"


def _ready(toy: Toy) -> dict[str, object]:
    for _ in range(600):
        record = toy.record()
        if record is not None and record["ready"]:
            return record
        time.sleep(0.1)
    raise AssertionError("not ready")


def test_signals_to_serve_stop_everything(toy: Toy) -> None:
    for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
        with toy.popen("serve", "toy.yaml", "--json") as process:
            _ready(toy)
            process.send_signal(number)
            out, err = process.communicate(timeout=20)
        assert process.returncode == code, err
        assert json.loads(out)["http"] == toy.http
        assert toy_server.left_behind(toy) == []


def test_a_killed_supervisor_takes_its_server_with_it(toy: Toy) -> None:
    printed = toy_server.serve(toy)
    record = toy.record()
    toy_server.kill([printed["pid"]])
    for _ in range(100):
        if not toy_server.left_behind(toy):
            break
        time.sleep(0.1)
    assert toy_server.left_behind(toy) == []
    toy_server.stop(toy)
    assert record is not None
    assert regions(record["shared_memory"]) == []


def test_a_dead_engine_is_answered_and_ends_the_server(toy: Toy) -> None:
    with toy.popen("serve", "toy.yaml") as process:
        record = _ready(toy)
        models = {model: pid for pid, model in processes_of(str(record["shared_memory"])).items()}
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(
                toy.run, "generate", "L", "--url", toy.http, "--max-tokens", "4000", "--speculation", "off"
            )
            while HttpServer(toy.http).command("toy", "status")["active"] == 0:
                assert not asked.done()
            toy_server.kill([models["toy__engine"]])
            answer = asked.result(timeout=30)
        assert answer.returncode == 1
        assert "error" in answer.stderr
        _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "toy__engine" in err
    assert not HttpServer(toy.http).ready()
    assert toy_server.left_behind(toy) == []
    assert regions(str(record["shared_memory"])) == []


@pytest.mark.parametrize("model", ["toy", "toy_unary"])
def test_a_dead_front_or_relay_ends_the_server_and_its_requests_at_once(toy: Toy, model: str) -> None:
    printed = toy_server.serve(toy)
    record = toy.record()
    assert record is not None
    models = {name: pid for pid, name in processes_of(str(record["shared_memory"])).items()}
    with ThreadPoolExecutor(4) as pool:
        fields = {"text_input": "L", "max_tokens": 4000, "route": "creative"}
        asked = [pool.submit(post, toy, fields, model) for _ in range(4)]
        while HttpServer(toy.http).command("toy", "status")["active"] == 0:
            assert not asked[0].done()
        toy_server.kill([models[model]])
        began = time.monotonic()
        assert all(one.exception(timeout=20) is not None for one in asked)
        assert time.monotonic() - began < 6  # a drain would take 8
    again = toy.run("serve", "toy.yaml", "--detach", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["pid"] != printed["pid"]
    toy_server.stop(toy)
    for words in (("status",), ("generate", "L")):
        gone = toy.run(*words, "--url", toy.http, "--json")
        assert json.loads(gone.stdout)["error"]["code"] == "no_server"
        assert str(record["log"]) in gone.stderr


def test_of_two_serves_at_once_one_serves_and_the_other_says_so(toy: Toy) -> None:
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(toy.run, "serve", "toy.yaml", "--detach", "--json") for _ in range(2)]
        done = sorted((one.result() for one in both), key=lambda one: one.returncode)
    assert [one.returncode for one in done] == [0, 1], [one.stderr for one in done]
    assert json.loads(done[1].stdout)["error"]["code"] == "already_served"
    assert HttpServer(toy.http).command("toy", "probe")["ready"]
    assert (records_folder(toy) / "models").is_dir()
    toy_server.stop(toy)
    assert toy_server.left_behind(toy) == []


def records_folder(toy: Toy) -> Path:
    return toy.folder / "cache" / "servers" / f"127.0.0.1_{toy.http_port}"
