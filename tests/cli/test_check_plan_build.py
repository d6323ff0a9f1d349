"""check, plan, build and doctor as a user meets them, on tiny real checkpoints."""

from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests import toys
from trtspec.cli import main
from trtspec.store import MANIFEST

SPEC = """
name: toy
runtime: reference
target: {model: ./target}
speculation: {method: draft_target, draft: {model: ./draft}, max_draft_len: 2}
limits: {max_seq_len: 64}
reference: {compile: "off"}
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    toys.random_checkpoint(tmp_path / "target")
    toys.random_checkpoint(tmp_path / "draft", seed=1, layers=1)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "toy.yaml"
    path.write_text(SPEC)
    return path


def _json(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict[str, Any]]:
    try:
        code = main.run([*argv, "--json"])
    except SystemExit as left:
        code = int(left.code or 0)
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, document


def test_check_of_a_good_spec(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = _json(capsys, "check", str(spec))
    assert (code, document["ok"]) == (0, True)
    assert all(finding["severity"] != "error" for finding in document["findings"])


def test_check_lists_every_fault_of_the_file(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec.write_text("name: toy\ntarget: {modle: ./target}\nlimits: {max_batch_size: none}\n")
    code, document = _json(capsys, "check", str(spec))
    assert (code, document["ok"]) == (1, False)
    assert {finding["line"] for finding in document["findings"]} == {2, 3}
    keys = {"code", "severity", "where", "line", "column", "message", "hint"}
    assert all(finding.keys() == keys for finding in document["findings"])


def test_check_of_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = _json(capsys, "check", str(tmp_path / "absent.yaml"))
    assert (code, document["ok"]) == (1, False)
    assert "absent.yaml" in json.dumps(document["findings"])


def test_check_of_a_missing_model(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec.write_text(SPEC.replace("./draft", "./absent"))
    code, document = _json(capsys, "check", str(spec))
    (error,) = [finding for finding in document["findings"] if finding["severity"] == "error"]
    assert code == 1 and error["where"] == "speculation.draft.model" and error["line"] == 5


def test_a02_other_tokens_are_found_by_the_command(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toys.letter_tokenizer(spec.parent / "draft", toys.LETTERS[::-1])
    code, document = _json(capsys, "check", str(spec))
    assert code == 1
    assert any(finding["severity"] == "error" and "draft" in finding["where"] for finding in document["findings"])


def test_check_warns_of_a_busy_port(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        spec.write_text(f"{SPEC}serving: {{http_port: {port}, grpc_port: 18001, metrics_port: 18002}}\n")
        code, document = _json(capsys, "check", str(spec))
    (busy,) = [finding for finding in document["findings"] if str(port) in finding["message"]]
    assert (code, busy["severity"]) == (0, "warning")


def test_check_for_people(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec.write_text(SPEC.replace("./draft", "./absent"))
    with pytest.raises(SystemExit) as left:
        main.run(["check", str(spec)])
    out = capsys.readouterr().out
    assert left.value.code == 1
    assert out.startswith("error: 5:") and "1 error" in out.splitlines()[-1]


def test_plan_prints_one_document_and_writes_nothing(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = _json(capsys, "plan", str(spec))
    assert code == 0
    assert [step["id"] for step in document["steps"]] == ["pack-target", "pack-draft", "repository"]
    assert all(step["key"] for step in document["steps"][:2])
    assert document["memory"]["target"]["kv_bytes_per_token"] == 2 * 2 * 2 * 8 * 4
    assert document["memory"]["target"]["kv_tokens"] >= 64
    assert sorted(path.name for path in spec.parent.iterdir()) == ["draft", "target", "toy.yaml"]


def test_plan_for_people(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["plan", str(spec)]) == 0
    assert "pack-target        to do" in capsys.readouterr().out


def test_a_plan_imports_nothing_heavy(spec: Path) -> None:
    code = (
        "import sys\nfrom trtspec.cli.main import run\n"
        "assert run(['plan', sys.argv[1], '--json']) == 0\n"
        "heavy = {'torch', 'transformers', 'numpy', 'tokenizers', 'jinja2', 'tritonclient', 'huggingface_hub'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(spec)], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_build_writes_artifacts_and_the_repository(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = _json(capsys, "build", str(spec))
    assert code == 0
    assert [artifact["role"] for artifact in document["artifacts"]] == ["target", "draft"]
    assert {"role", "key", "path", "cached", "seconds"} <= document["artifacts"][0].keys()
    repository = Path(document["repository"])
    assert repository == spec.parent / "model_repo"
    assert {"toy", "toy_unary", "toy__engine"} <= {path.name for path in repository.iterdir()}
    code, again = _json(capsys, "build", str(spec))
    assert code == 0 and all(artifact["cached"] for artifact in again["artifacts"])
    code, planned = _json(capsys, "plan", str(spec))
    assert [step["cached"] for step in planned["steps"][:2]] == [True, True]


def test_build_elsewhere(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = _json(capsys, "build", str(spec), "--engines", "e", "--model-repo", "deep/m")
    assert code == 0 and document["repository"] == str(spec.parent / "deep" / "m")
    assert (spec.parent / "e").is_dir() and not (spec.parent / "engines").exists()


def test_a10_a_failed_build_writes_no_repository(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = spec.parent / "draft" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "tie_word_embeddings": True}))
    code, document = _json(capsys, "build", str(spec))
    assert code == 1 and document["error"]["message"]
    assert not (spec.parent / "model_repo").exists()
    assert len(list((spec.parent / "engines").glob("target-pack-*"))) == 1


def test_build_where_a_file_is_in_the_way(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (spec.parent / "engines").write_text("mine")
    code, document = _json(capsys, "build", str(spec))
    assert code == 1 and document["error"]["code"] == "not_a_folder"
    assert (spec.parent / "engines").read_text() == "mine"


def _whole(folder: Path) -> bool:
    manifest = json.loads((folder / MANIFEST).read_text())
    sizes = {name: (folder / name).stat().st_size for name in manifest["outputs"]}
    return all(entry["bytes"] == sizes[name] for name, entry in manifest["outputs"].items())


def test_kill_9_of_a_real_build_at_ten_moments(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    moments, killed = random.Random(0), 0
    for _ in range(10):
        build = subprocess.Popen(
            [sys.executable, "-m", "trtspec", "build", str(spec)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        assert build.stderr is not None
        build.stderr.read(1)  # the first word of its progress: it holds the lock and works
        time.sleep(moments.uniform(0, 0.3))
        build.send_signal(signal.SIGKILL)
        killed += build.wait(60) == -signal.SIGKILL
        build.stderr.close()
        assert all(_whole(folder) for folder in (spec.parent / "engines").glob("*-pack-*"))
        for model in (spec.parent / "model_repo").glob("toy*"):
            assert (model / "config.pbtxt").stat().st_size > 0 and (model / "1" / "model.py").is_file()
    assert killed > 0
    before = {folder: folder.stat().st_ino for folder in (spec.parent / "engines").glob("*-pack-*")}
    code, document = _json(capsys, "build", str(spec))
    assert code == 0 and len(document["artifacts"]) == 2
    assert all(folder.stat().st_ino == inode for folder, inode in before.items())
    assert list((spec.parent / "engines" / ".staging").iterdir()) == []


def test_two_builds_at_once_do_the_work_once(spec: Path) -> None:
    argv = [sys.executable, "-m", "trtspec", "build", str(spec), "--json"]
    both = [subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    ends = [build.communicate(timeout=120) for build in both]
    assert [build.returncode for build in both] == [0, 0], ends
    documents = [json.loads(out) for out, _ in ends]
    cached = sorted(sum(artifact["cached"] for artifact in document["artifacts"]) for document in documents)
    assert cached == [0, 2]


def test_doctor_names_what_is_there_and_what_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    code, document = _json(capsys, "doctor")
    items = {item["name"]: item for item in document["items"]}
    assert code == 0
    assert items["python"]["state"] == "ok" and sys.version.split()[0] in items["python"]["message"]
    assert items["torch"]["state"] == items["tokenizers"]["state"] == "ok"
    assert {"tritonserver", "python stub", "libpython", "c++ compiler", "memory", "disk", "gpu"} <= items.keys()
    for item in items.values():
        assert item["state"] in ("ok", "lacks", "warn")
        assert item["needed_for"]
        assert item["hint"] or item["state"] != "lacks"


def test_doctor_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["doctor"]) == 0
    assert "ok     python: " in capsys.readouterr().out
