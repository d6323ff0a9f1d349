from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from trtspec.errors import StoreError
from trtspec.repository import write
from trtspec.repository.tree import Repository

ONE = Repository({"a/config.pbtxt": "one", "a/1/model.py": "one"})
TWO = Repository({"b/config.pbtxt": "two"})


def tree(folder: Path) -> dict[str, str]:
    return {
        str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file() and p.name != ".trtspec"
    }


def test_written_whole_and_replaced_whole(tmp_path: Path) -> None:
    ONE.write(tmp_path / "repo")
    assert tree(tmp_path / "repo") == ONE.files
    again = Repository({"a__engine/config.pbtxt": "new"})
    again.write(tmp_path / "repo")
    assert tree(tmp_path / "repo") == again.files
    assert os.listdir(tmp_path) == ["repo"]


def test_models_of_other_specs_stay(tmp_path: Path) -> None:
    for repository in (ONE, TWO, Repository({"a_unary/config.pbtxt": "newer"})):
        repository.write(tmp_path / "repo")
    assert tree(tmp_path / "repo") == {"a_unary/config.pbtxt": "newer", **TWO.files}


def test_a_readme_alone_is_no_repository_and_is_kept(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    ONE.write(tmp_path)
    assert tree(tmp_path) == {**ONE.files, "README.md": "mine"}
    TWO.write(tmp_path)
    assert tree(tmp_path) == {**ONE.files, **TWO.files, "README.md": "mine"}


@pytest.mark.parametrize("name", ["models/x", "notes.txt", ".hidden"])
def test_a_folder_of_others_is_refused_and_untouched(tmp_path: Path, name: str) -> None:
    file = tmp_path / "repo" / name
    file.parent.mkdir(parents=True)
    file.write_text("theirs")
    with pytest.raises(StoreError, match="was not written by trtspec"):
        ONE.write(tmp_path / "repo")
    assert tree(tmp_path / "repo") == {name: "theirs"}


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "repo").write_text("theirs")
    with pytest.raises(StoreError, match="not a folder"):
        ONE.write(tmp_path / "repo")


def test_a10_a_failed_write_leaves_the_old_repository(tmp_path: Path) -> None:
    ONE.write(tmp_path / "repo")
    broken = Repository({"b/config.pbtxt": "two", "b/config.pbtxt/x": "a file is in the way"})
    with pytest.raises(StoreError, match="cannot write"):
        broken.write(tmp_path / "repo")
    assert tree(tmp_path / "repo") == ONE.files
    assert os.listdir(tmp_path) == ["repo"]


def test_what_a_killed_run_staged_is_swept(tmp_path: Path) -> None:
    (tmp_path / ".repo.staged-dead").mkdir()
    ONE.write(tmp_path / "repo")
    assert os.listdir(tmp_path) == ["repo"]


def test_a_reader_never_sees_a_mixture(tmp_path: Path) -> None:
    """Both repositories hold the same file twice; at no moment do the two differ or lack."""
    both = [Repository({"m/one": text, "m/two": text}) for text in ("old", "new")]
    both[0].write(tmp_path / "repo")
    done, seen = threading.Event(), set()

    def look() -> None:
        while not done.is_set():
            handle = os.open(tmp_path / "repo" / "m", os.O_RDONLY)
            try:
                seen.add(frozenset(_read(handle, name) for name in ("one", "two")) - {None})
            finally:
                os.close(handle)

    reader = threading.Thread(target=look)
    reader.start()
    for turn in range(40):
        both[turn % 2].write(tmp_path / "repo")
    done.set()
    reader.join()
    assert seen <= {frozenset({"old"}), frozenset({"new"}), frozenset()}  # empty: opened, then deleted with the old


def _read(folder: int, name: str) -> str | None:
    try:
        handle = os.open(name, os.O_RDONLY, dir_fd=folder)
    except FileNotFoundError:
        return None
    with os.fdopen(handle) as file:
        return file.read()


def test_without_an_atomic_exchange_two_renames_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write.sys, "platform", "other")
    ONE.write(tmp_path / "repo")
    TWO.write(tmp_path / "repo")
    assert tree(tmp_path / "repo") == {**ONE.files, **TWO.files}
    assert os.listdir(tmp_path) == ["repo"]
