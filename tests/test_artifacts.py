"""From a spec to its artifacts, with tiny real checkpoints and real commands."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from tests import toys
from trtspec.artifacts import Artifacts, building, built, ensure, plan_of, refuse_early, wanted_of
from trtspec.errors import BuildError, StoreError, TrtspecError
from trtspec.spec.load import parse_spec
from trtspec.spec.model import Spec
from trtspec.store import Store

PAIR = """
name: toy
runtime: reference
target: {model: ./target}
speculation: {method: draft_target, draft: {model: ./draft}, max_draft_len: 2}
limits: {max_seq_len: 64}
reference: {compile: "%s"}
"""


def _spec(folder: Path, compile_: str = "off", text: str = PAIR) -> Spec:
    loaded = parse_spec(text.replace("%s", compile_), "toy.yaml", folder)
    assert loaded.spec is not None, loaded.errors
    return loaded.spec


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    toys.random_checkpoint(tmp_path / "target")
    toys.random_checkpoint(tmp_path / "draft", seed=1, layers=1)
    return tmp_path


def _fake_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    tool = folder / "fake-g++"
    tool.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo fake 1.0 && exit 0\n{script}\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", str(tool))
    return tool


WRITES = 'while [ "$1" != -o ]; do shift; done; echo library > "$2"'


def _inodes(artifacts: Artifacts) -> dict[str, int]:
    return {role: os.stat(artifact.path).st_ino for role, artifact in artifacts.items()}


def test_a_pair_is_packed_once(folder: Path) -> None:
    said: list[str] = []
    first = ensure(_spec(folder), folder / "engines", said.append)
    second = ensure(_spec(folder), folder / "engines", said.append)
    assert list(first) == list(second) == ["target", "draft"]
    assert [artifact.cached for artifact in (*first.values(), *second.values())] == [False, False, True, True]
    assert _inodes(first) == _inodes(second)
    for artifact in first.values():
        assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in artifact.path.iterdir()}
        assert artifact.manifest["source"]["model"] == f"./{artifact.role}"
        assert artifact.manifest["source"]["files"]["model.safetensors"]
    assert [line for line in said if "done in" in line] == said[1::2] and len(said) == 4


def test_a_complete_store_is_only_looked_at(folder: Path) -> None:
    """As in an image whose folders cannot be written: neither lock nor log is touched."""
    ensure(_spec(folder), folder / "engines", print)
    (folder / "engines" / ".lock").unlink()
    again = ensure(_spec(folder), folder / "engines", print)
    assert all(artifact.cached for artifact in again.values())
    assert not (folder / "engines" / ".lock").exists()


def test_a_build_that_cannot_fit_is_refused_before_work(folder: Path) -> None:
    store, planned = Store(folder), plan_of(_spec(folder), folder / "engines")
    refuse_early(planned, store)
    huge = dataclasses.replace(planned.steps[0], disk_bytes=1 << 60)
    with pytest.raises(StoreError, match="the build writes") as caught:
        refuse_early(dataclasses.replace(planned, steps=(huge,)), store)
    assert caught.value.code == "disk_full"
    refuse_early(dataclasses.replace(planned, steps=(dataclasses.replace(huge, cached=True),)), store)


def test_a_plan_after_a_build_is_cached(folder: Path) -> None:
    before = plan_of(_spec(folder), folder / "engines", folder / "repo")
    artifacts = ensure(_spec(folder), folder / "engines", print)
    after = plan_of(_spec(folder), folder / "engines", folder / "repo")
    assert [step.cached for step in before.stored] == [False, False]
    assert [step.cached for step in after.stored] == [True, True]
    assert [step.key for step in before.stored] == [step.key for step in after.stored]
    assert [step.output for step in after.stored] == [artifact.path for artifact in artifacts.values()]


def test_planning_writes_nothing_under_engines(folder: Path) -> None:
    plan_of(_spec(folder), folder / "engines", folder / "repo")
    assert not (folder / "engines").exists() and not (folder / "repo").exists()


def test_changed_weights_are_packed_again(folder: Path) -> None:
    first = ensure(_spec(folder), folder / "engines", print)
    shutil.rmtree(folder / "draft")
    toys.random_checkpoint(folder / "draft", seed=2, layers=1)
    second = ensure(_spec(folder), folder / "engines", print)
    assert first["target"].key == second["target"].key
    assert first["draft"].key != second["draft"].key


def test_a_tokenizer_of_its_own_is_packed_and_counts(folder: Path) -> None:
    toys.letter_tokenizer(folder / "words", "abc")
    text = PAIR.replace("./target}", "./target, tokenizer: ./words}")
    text = text.replace("model: ./draft", "model: ./draft, tokenizer: ./words")
    plain = ensure(_spec(folder), folder / "engines", print)["target"]
    own = ensure(_spec(folder, text=text), folder / "engines", print)["target"]
    assert own.key != plain.key
    assert (own.path / "tokenizer.json").read_text() != (plain.path / "tokenizer.json").read_text()


def test_built_finds_what_ensure_made(folder: Path) -> None:
    made = ensure(_spec(folder), folder / "engines", print)
    found = built(_spec(folder), folder / "engines")
    assert {role: artifact.path for role, artifact in made.items()} == {r: a.path for r, a in found.items()}


@pytest.mark.parametrize("kind", ["nothing", "other engines", "other weights", "other dtype"])
def test_what_is_not_built_names_the_command(folder: Path, kind: str) -> None:
    text, engines = PAIR, folder / "engines"
    if kind != "nothing":
        ensure(_spec(folder), engines, print)
    if kind == "other engines":
        engines = folder / "elsewhere"
    if kind == "other weights":
        toys.random_checkpoint(folder / "target", seed=9)
    if kind == "other dtype":
        text = PAIR.replace("./target}", "./target, dtype: bfloat16}")
    with pytest.raises(BuildError) as caught:
        built(_spec(folder, text=text), engines)
    assert "trtspec build" in (caught.value.hint or "")
    assert caught.value.where == "target"
    assert not (folder / "elsewhere").exists()


def test_a10_a_failed_draft_leaves_the_target_and_no_repository(folder: Path) -> None:
    engines, config = folder / "engines", folder / "draft" / "config.json"
    good = config.read_text()
    # The headers do not show it: the output matrix is said to be the embedding and is another one.
    config.write_text(json.dumps({**json.loads(good), "tie_word_embeddings": True}))
    with pytest.raises(TrtspecError), building(_spec(folder), engines, print, model_repo=folder / "repo"):
        raise AssertionError("not reached")
    assert [path.name.split("-")[0] for path in engines.glob("*-pack-*")] == ["target"]
    assert list((engines / ".staging").iterdir()) == []
    config.write_text(good)
    artifacts = ensure(_spec(folder), engines, print)
    assert (artifacts["target"].cached, artifacts["draft"].cached) == (True, False)


def test_a10_a_failed_command_is_shown_with_its_log_and_the_rest_is_reused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = _fake_compiler(folder, monkeypatch, "echo one; echo kernels.cpp:3: no such thing >&2; exit 4")
    with pytest.raises(BuildError) as caught:
        ensure(_spec(folder, "on"), folder / "engines", print)
    error = caught.value
    assert "exit code 4" in error.message and str(tool) in error.message and "no such thing" in error.message
    (log,) = (folder / "engines" / "logs").glob("kernels-*.log")
    assert str(log) in (error.hint or "") and "no such thing" in log.read_text()
    assert not list((folder / "engines").glob("kernels-*"))
    _fake_compiler(folder, monkeypatch, WRITES)
    artifacts = ensure(_spec(folder, "on"), folder / "engines", print)
    assert [artifact.cached for artifact in artifacts.values()] == [True, True, False]
    assert (artifacts["kernels"].path / "kernels.so").read_text() == "library\n"


def test_kernels_that_do_not_compile_are_a_warning_under_auto(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_compiler(folder, monkeypatch, "echo no such thing >&2; exit 4")
    said: list[str] = []
    artifacts = ensure(_spec(folder, "auto"), folder / "engines", said.append)
    assert list(artifacts) == ["target", "draft"]
    (warning,) = [line for line in said if line.startswith("warning")]
    assert "no such thing" in warning and "kernels" in warning and ".log" in warning
    assert list(built(_spec(folder, "auto"), folder / "engines")) == ["target", "draft"]
    _fake_compiler(folder, monkeypatch, WRITES)
    again: list[str] = []
    assert list(ensure(_spec(folder, "auto"), folder / "engines", again.append)) == ["target", "draft"]
    assert len(again) == 1 and "kernels" in again[0] and "trtspec build" in again[0]
    with building(_spec(folder, "auto"), folder / "engines", print) as (_, mended):
        assert list(mended) == ["target", "draft", "kernels"]


def test_another_compiler_compiles_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = _fake_compiler(folder, monkeypatch, WRITES)
    first = ensure(_spec(folder, "on"), folder / "engines", print)["kernels"]
    tool.write_text(tool.read_text().replace("fake 1.0", "fake 2.0"))
    second = ensure(_spec(folder, "on"), folder / "engines", print)["kernels"]
    assert first.key != second.key and not second.cached


def test_no_compiler_is_an_error_only_where_it_is_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(folder))
    assert list(ensure(_spec(folder, "auto"), folder / "engines", print)) == ["target", "draft"]
    with pytest.raises(BuildError, match=r"no C\+\+ compiler") as caught:
        ensure(_spec(folder, "on"), folder / "engines", print)
    assert caught.value.where == "reference.compile"


def test_a_build_is_served_after_its_sources_are_gone(folder: Path) -> None:
    """As with a hub model whose cache was emptied: here the source is a file in a wheel that was never fetched."""
    made = ensure(_spec(folder), folder / "engines", print)
    wheel = PAIR.replace("./target", "pypi:none==1/m.gguf").replace("./draft", "pypi:none==1/d.gguf")
    record = folder / "engines" / ".builds" / "toy.json"
    spec = _spec(folder, text=wheel)
    with pytest.raises(BuildError):
        built(spec, folder / "engines")
    record.write_text(json.dumps({**json.loads(record.read_text()), "wanted": wanted_of(spec)}))
    assert {r: a.path for r, a in built(spec, folder / "engines").items()} == {r: a.path for r, a in made.items()}
    (made["draft"].path / "model.safetensors").unlink()
    with pytest.raises(BuildError, match="draft of toy"):
        built(spec, folder / "engines")


def test_other_runtimes_are_planned_and_not_built(folder: Path) -> None:
    text = PAIR.replace("runtime: reference", "runtime: tensorrt")
    assert plan_of(_spec(folder, text=text), folder / "engines").runtime == "tensorrt"
    with pytest.raises(BuildError, match="plans runtime tensorrt") as caught:
        ensure(_spec(folder, text=text), folder / "engines", print)
    assert caught.value.where == "runtime"
    hub = text.replace("./target", "hf:org/toy").replace("./draft", "hf:org/toy")
    with pytest.raises(BuildError, match="plans runtime tensorrt"):  # before anything is fetched
        ensure(_spec(folder, text=hub), folder / "engines", print)
    assert not (folder / "engines").exists()


def test_an_unsupported_method_is_refused_before_work(folder: Path) -> None:
    text = PAIR.replace("{method: draft_target, draft: {model: ./draft}, max_draft_len: 2}", "{method: suffix}")
    with pytest.raises(BuildError, match="method suffix"):
        ensure(_spec(folder, text=text), folder / "engines", print)
    assert not list((folder / "engines").glob("*-pack-*"))


def test_progress_reaches_the_end(folder: Path) -> None:
    seen: dict[str, tuple[int, int]] = {}

    def advance(label: str, done: int, total: int) -> None:
        assert done >= seen.get(label, (0, 0))[0]
        seen[label] = (done, total)

    ensure(_spec(folder), folder / "engines", print, advance=advance)
    assert seen.keys() == {"pack-target", "pack-draft"}
    assert all(done == total for done, total in seen.values())


@pytest.mark.parametrize("letters", ["abd", "ab"])
def test_a02_no_work_starts_on_what_check_refuses(folder: Path, letters: str) -> None:
    """Neither a build nor a run; the message is that of `trtspec check`, with the place in the spec."""
    toys.letter_tokenizer(folder / "words", letters)
    text = PAIR.replace("model: ./draft", "model: ./draft, tokenizer: ./words")
    with pytest.raises(BuildError) as error:
        ensure(_spec(folder, text=text), folder / "engines", print)
    assert error.value.where is not None and error.value.where.startswith("speculation.draft")
    assert error.value.line == 5
    assert not list((folder / "engines").glob("*-pack-*"))


def test_what_is_damaged_is_said_and_mended_by_another_build(folder: Path) -> None:
    spec, engines, said = _spec(folder), folder / "engines", list[str]()
    config = ensure(spec, engines, print)["target"].path / "config.json"
    config.write_text(config.read_text().replace('"num_layers": 2', '"num_layers": 9'))
    with pytest.raises(BuildError, match=r"the content of config\.json has changed") as caught:
        built(spec, engines)
    assert (caught.value.code, "trtspec build" in (caught.value.hint or "")) == ("damaged", True)
    ensure(spec, engines, said.append)
    assert any("set aside" in line for line in said)
    assert set(built(spec, engines)) == {"target", "draft"}


@pytest.mark.parametrize("text", ["[]", "[" * 100_000, "{}", '{"wanted": 1, "artifacts": []}'])
def test_a_damaged_record_of_a_build_is_no_build(folder: Path, text: str) -> None:
    spec, engines = _spec(folder), folder / "engines"
    ensure(spec, engines, print)
    (engines / ".builds" / "toy.json").write_text(text)
    shutil.rmtree(folder / "target")
    with pytest.raises(TrtspecError, match=r"is not built|there is no model"):
        built(spec, engines)


def test_one_model_for_both_roles_is_packed_once(folder: Path) -> None:
    spec = _spec(folder, text=PAIR.replace("./draft", "./target"))
    artifacts = ensure(spec, folder / "engines", print)
    assert artifacts["target"].path == artifacts["draft"].path
    assert len(list((folder / "engines").glob("*-pack-*"))) == 1
    assert built(spec, folder / "engines")["draft"].role == "draft"
