"""What of a spec's models is on disk, and what names its content."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import toys
from trtspec import inventory
from trtspec.errors import CheckpointError, SourceError
from trtspec.inventory import cache_folder, look
from trtspec.spec.load import parse_spec
from trtspec.spec.model import Spec

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def _spec(folder: Path, model: str) -> Spec:
    loaded = parse_spec(f"name: toy\ntarget:\n  model: {model}\n", "toy.yaml", folder)
    assert loaded.spec is not None, loaded.errors
    return loaded.spec


def test_the_cache_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == Path.home() / ".cache" / "trtspec"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "trtspec"
    monkeypatch.setenv("TRTSPEC_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"


def test_a_local_model_is_named_by_its_files(tmp_path: Path) -> None:
    toys.random_checkpoint(tmp_path / "target")
    first = look(_spec(tmp_path, "./target"))["target"]
    assert first is not None and first.identity is not None
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= first.files.keys()
    (tmp_path / "target").rename(tmp_path / "moved")
    moved = look(_spec(tmp_path, "./moved"))["target"]
    assert moved is not None and moved.identity == first.identity
    (tmp_path / "moved" / "README.md").write_text("nothing of it is built from this")
    again = look(_spec(tmp_path, "./moved"))["target"]
    assert again is not None and again.identity == first.identity


def test_a_hub_model_is_named_by_its_commit(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    snapshot = cache / "hub" / "models--org--toy" / "snapshots" / COMMIT
    record = cache / "hub" / "fetched" / "org--toy" / "main.json"
    assert look(_spec(tmp_path, "hf:org/toy"), cache=cache) == {"target": None}
    toys.random_checkpoint(snapshot)
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({"commit": COMMIT}))
    planned = look(_spec(tmp_path, "hf:org/toy"), cache=cache)["target"]
    building = look(_spec(tmp_path, "hf:org/toy"), cache=cache, hash_all=True)["target"]
    assert planned is not None and building is not None
    assert planned.revision == building.revision == COMMIT
    assert planned.identity == building.identity is not None
    assert planned.files == {} and "model.safetensors" in building.files


def test_a_large_model_is_hashed_by_a_build_and_known_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "HASHED_AT_ONCE", 100)
    spec = _spec(tmp_path, "./target")
    toys.random_checkpoint(tmp_path / "target")
    before = look(spec)["target"]
    hashed = look(spec, hash_all=True)["target"]
    after = look(spec)["target"]
    assert before is not None and hashed is not None and after is not None
    assert before.identity is None
    assert hashed.identity == after.identity is not None
    toys.random_checkpoint(tmp_path / "target", seed=3)
    changed = look(spec)["target"]
    assert changed is not None and changed.identity is None


def test_an_error_has_the_place_of_the_model_in_the_spec(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as absent:
        look(_spec(tmp_path, "./absent"))
    assert (absent.value.line, absent.value.column) == (3, 10)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    with pytest.raises(CheckpointError) as broken:
        look(_spec(tmp_path, "./broken"))
    assert broken.value.line == 3
