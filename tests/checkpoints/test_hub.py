from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import toys
from tests.checkpoints.hub_server import COMMIT, Hub, serving
from trtspec.checkpoints import sources
from trtspec.checkpoints.facts import read_facts
from trtspec.errors import SourceError


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    folder = toys.random_checkpoint(tmp_path / "upstream", shards=2)
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    (folder / "modeling_custom.py").write_text("print('never')")
    (folder / "consolidated.safetensors").write_bytes(b"other weights")
    (folder / "original").mkdir()
    (folder / "original" / "model.safetensors").write_bytes(b"other weights")
    with serving(folder) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        yield server


SOURCE = sources.HubSource("hf:org/model", "org/model")


def never(*_: object, **__: object) -> object:
    raise AssertionError("no process is started for the hub")


def fetch(cache: Path, revision: str | None = None) -> sources.Fetched:
    return sources.fetch(SOURCE, cache, revision, run=never)  # type: ignore[arg-type]


def test_fetches_what_counts_and_pins_the_commit(hub: Hub, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert sources.locate(SOURCE, cache, None) is None
    fetched = fetch(cache)
    assert fetched.revision == fetched.path.name == COMMIT
    assert {file.name for file in fetched.path.iterdir()} == {
        "config.json",
        "generation_config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert set(fetched.files) == {file.name for file in fetched.path.iterdir()}
    assert not any(path.endswith((".bin", ".py")) for path in hub.asked)
    assert read_facts(fetched.path).config.num_layers == 2


def test_what_was_fetched_is_found_without_the_network(hub: Hub, tmp_path: Path) -> None:
    path = fetch(tmp_path).path
    hub.asked.clear()
    assert sources.locate(SOURCE, tmp_path, None) == path
    assert sources.locate(SOURCE, tmp_path, "main") == path
    assert sources.locate(SOURCE, tmp_path, COMMIT) == path
    assert sources.locate(SOURCE, tmp_path, "v2") is None
    assert fetch(tmp_path).path == path
    assert hub.asked == []


def test_a_missing_shard_means_not_fetched(hub: Hub, tmp_path: Path) -> None:
    shard = fetch(tmp_path).path / "model-00002-of-00002.safetensors"
    shard.resolve().unlink()
    assert sources.locate(SOURCE, tmp_path, None) is None
    assert fetch(tmp_path).path == shard.parent
    assert shard.is_file()


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (401, "RepoNotFound", "is not on the hub, or is private"),
        (403, "GatedRepo", "is gated"),
        (404, "RepoNotFound", "is not on the hub, or is private"),
        (500, "", "cannot be fetched"),
    ],
)
def test_refusals_of_the_hub_are_explained(hub: Hub, tmp_path: Path, status: int, code: str, words: str) -> None:
    hub.status, hub.error_code = status, code
    with pytest.raises(SourceError) as caught:
        fetch(tmp_path)
    assert f"hf:org/model {words}" in caught.value.message
    assert caught.value.hint and "\n" not in caught.value.message


def test_an_unknown_revision_is_named(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="has no revision 'v9'"):
        fetch(tmp_path, "v9")


def test_no_hub_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(SourceError, match="the hub is not reachable"):
        fetch(tmp_path)


def test_a_file_that_differs_from_its_hash_is_refused_and_fetched_anew(hub: Hub, tmp_path: Path) -> None:
    hub.lie = True
    with pytest.raises(SourceError, match="did not arrive as the hub has it"):
        fetch(tmp_path)
    assert sources.locate(SOURCE, tmp_path, None) is None
    hub.lie = False
    assert read_facts(fetch(tmp_path).path).parameters > 0


def test_a_model_without_safetensors_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "upstream"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    with serving(folder) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        with pytest.raises(SourceError, match=r"lacks model.safetensors: models are read from safetensors only"):
            fetch(tmp_path / "cache")
