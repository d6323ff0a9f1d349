"""The store: reuse, damage, locks, full disks, and that a killed build leaves nothing half-written."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trtspec import store as store_module
from trtspec.errors import BuildError, StoreError
from trtspec.steps import Step
from trtspec.store import MANIFEST, Store

KEY = "0123456789abcdef" * 4


def _step(root: Path, role: str = "target", key: str = KEY) -> Step:
    return Step(id=f"pack-{role}", role=role, kind="pack", output=root / f"{role}-pack-{key[:16]}", key=key)


def _write(step: Step, folder: Path, log: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "weights").write_bytes(b"w" * 1000)
    (folder / "sub" / "words").write_text(step.role)


def _never(step: Step, folder: Path, log: Path) -> None:
    raise AssertionError("it is there already")


def test_an_artifact_is_made_once(tmp_path: Path) -> None:
    store, said = Store(tmp_path / "engines"), []
    with store.lock(said.append):
        made = store.make(_step(store.root), _write, said.append, {"source": {"revision": "abc"}})
        again = store.make(_step(store.root), _never, said.append)
    assert (made.cached, again.cached) == (False, True)
    assert made.path == again.path == store.root / "target-pack-0123456789abcdef"
    assert made.seconds == again.seconds
    assert (made.path / "sub" / "words").read_text() == "target"
    assert said == []


def test_the_manifest_says_what_and_from_what(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.lock(print):
        made = store.make(_step(tmp_path), _write, print, {"source": {"revision": "abc"}})
    manifest = json.loads((made.path / MANIFEST).read_text())
    assert manifest["key"] == KEY
    assert manifest["source"] == {"revision": "abc"}
    assert manifest["step"]["id"] == "pack-target"
    assert manifest["outputs"]["weights"]["bytes"] == 1000
    assert manifest["outputs"]["weights"]["sha256"] == hashlib.sha256(b"w" * 1000).hexdigest()
    assert set(manifest["outputs"]) == {"weights", "sub/words"}
    assert manifest["started"] <= manifest["finished"]
    assert {"trtspec", "python"} <= manifest["versions"].keys()


def _truncate(folder: Path) -> None:
    (folder / "weights").write_bytes(b"w" * 999)


def _lose(folder: Path) -> None:
    (folder / "sub" / "words").unlink()


def _blank(folder: Path) -> None:
    (folder / MANIFEST).write_text("{}")


def _no_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()


def _other_key(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**manifest, "key": KEY[::-1]}))


def _flip(folder: Path) -> None:
    (folder / "weights").write_bytes(b"w" * 500 + b"v" + b"w" * 499)


def _edit(folder: Path) -> None:
    (folder / "sub" / "words").write_text("TARGET")


def _deep(folder: Path) -> None:
    (folder / MANIFEST).write_text("[" * 100_000)


def _rename_output(folder: Path, name: str) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    outputs = {**manifest["outputs"], name: manifest["outputs"]["weights"]}
    (folder / MANIFEST).write_text(json.dumps({**manifest, "outputs": outputs}))


def _nul(folder: Path) -> None:
    _rename_output(folder, "a\0")


def _outside(folder: Path) -> None:
    _rename_output(folder, "../weights")


def _seconds(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**manifest, "seconds": "x"}))


HARMS = [_truncate, _lose, _blank, _no_manifest, _other_key, _flip, _edit, _deep, _nul, _outside, _seconds]


def test_a_large_file_is_hashed_again_only_where_its_time_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "HASHED_ALWAYS", 100)
    store, step = Store(tmp_path), _step(tmp_path)
    with store.lock(print):
        weights = store.make(step, _write, print).path / "weights"
    made = weights.stat()
    os.utime(weights)
    assert store.find(step) is not None, "the same content with another time"
    weights.write_bytes(b"v" * 1000)
    assert store.find(step) is None
    os.utime(weights, ns=(made.st_atime_ns, made.st_mtime_ns))
    assert store.find(step) is not None, "of the size and time of the manifest: not read again"


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_artifact_is_set_aside_and_built_again(tmp_path: Path, harm: object) -> None:
    store, said, step = Store(tmp_path), [], _step(tmp_path)
    with store.lock(said.append):
        made = store.make(step, _write, said.append)
        assert callable(harm)
        harm(made.path)
        assert store.find(step) is None
        again = store.make(step, _write, said.append)
    assert not again.cached
    assert store.find(step) is not None
    assert len(said) == 1 and "damaged" in said[0] and str(made.path) in said[0]
    assert (tmp_path / ".damaged" / made.path.name).is_dir()


@pytest.mark.parametrize("error", [BuildError("compiler says no"), KeyboardInterrupt("compiler says no")])
def test_a_failed_step_leaves_nothing_and_its_error_passes(tmp_path: Path, error: BaseException) -> None:
    store = Store(tmp_path)

    def fail(step: Step, folder: Path, log: Path) -> None:
        (folder / "half").write_text("half")
        raise error

    with store.lock(print), pytest.raises(type(error), match="compiler says no"):
        store.make(_step(tmp_path), fail, print)
    assert list((tmp_path / ".staging").iterdir()) == []
    assert not _step(tmp_path).output.exists()


def test_a_step_that_writes_nothing_has_failed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.lock(print), pytest.raises(StoreError, match="wrote nothing"):
        store.make(_step(tmp_path), lambda step, folder, log: None, print)
    assert not _step(tmp_path).output.exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_said_and_nothing_is_kept(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def overflow(step: Step, folder: Path, log: Path) -> None:
        (folder / "half").write_text("half")
        with Path("/dev/full").open("w") as full:
            full.write("x" * 100_000)

    with store.lock(print), pytest.raises(StoreError) as caught:
        store.make(_step(tmp_path), overflow, print)
    assert caught.value.code == "disk_full"
    assert "no space left" in caught.value.message and caught.value.hint is not None
    assert list((tmp_path / ".staging").iterdir()) == []


def test_an_error_of_the_source_is_not_blamed_on_the_store(tmp_path: Path) -> None:
    store = Store(tmp_path / "engines")

    def read(step: Step, folder: Path, log: Path) -> None:
        (tmp_path / "absent").read_bytes()

    with store.lock(print), pytest.raises(FileNotFoundError):
        store.make(_step(store.root), read, print)


@pytest.mark.parametrize("kind", ["file", "dangling link", "below a file"])
def test_a_path_that_is_no_folder_is_refused(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "engines"
    if kind == "file":
        root.write_text("mine")
    elif kind == "dangling link":
        root.symlink_to(tmp_path / "gone")
    else:
        root.write_text("mine")
        root = root / "deeper"
    with pytest.raises(StoreError) as caught, Store(root).lock(print):
        pass
    assert caught.value.code == "not_a_folder"
    assert str(root) in caught.value.message


def test_a_folder_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(StoreError) as caught, Store(Path("/proc/engines")).lock(print):
        pass
    assert "cannot be written" in caught.value.message
    assert "--engines" in (caught.value.hint or "")


def test_a_link_to_a_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "engines").symlink_to(tmp_path / "disk")
    store = Store(tmp_path / "engines")
    with store.lock(print):
        store.make(_step(store.root), _write, print)
    assert (tmp_path / "disk" / "target-pack-0123456789abcdef" / MANIFEST).is_file()


def test_sweeping_never_follows_a_link(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "file").write_text("precious")
    store = Store(tmp_path / "engines")
    store.staging.mkdir(parents=True)
    (store.staging / "link").symlink_to(mine)
    (store.staging / "left.1-ab").mkdir()
    with store.lock(print):
        pass
    assert list(store.staging.iterdir()) == []
    assert (mine / "file").read_text() == "precious"


HOLD = """
import sys, time
from pathlib import Path
from trtspec.store import Store
with Store(Path(sys.argv[1])).lock(print):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def _holder(root: Path, seconds: float) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", HOLD, str(root), str(seconds)]
    holder = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def test_a_second_process_waits_and_says_for_whom(tmp_path: Path) -> None:
    said: list[str] = []
    with _holder(tmp_path, 0.5) as holder, Store(tmp_path).lock(said.append):
        assert holder.wait(20) == 0
    assert len(said) == 1
    assert f"process {holder.pid} on" in said[0] and "waiting" in said[0]


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    with _holder(tmp_path, 100) as holder:
        holder.kill()
        holder.wait(20)
        with Store(tmp_path).lock(said.append):
            pass
    assert said == []


SLOW = """
import sys, time
from pathlib import Path
from trtspec.steps import Step
from trtspec.store import Store
root = Path(sys.argv[1])
def write(step, folder, log):
    for number in range(20):
        (folder / f"part{number}").write_bytes(b"x" * 4096)
        time.sleep(0.002)
store = Store(root)
print("go", flush=True)
with store.lock(print):
    for number in range(6):
        key = f"{number:064x}"[::-1]
        output = root / f"r{number}-pack-{key[:16]}"
        store.make(Step(id="s", role=f"r{number}", kind="pack", output=output, key=key), write, print)
"""


def test_kill_9_at_ten_moments_never_leaves_half_an_artifact(tmp_path: Path) -> None:
    moments = random.Random(0)
    for _ in range(10):
        build = subprocess.Popen([sys.executable, "-c", SLOW, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert build.stdout is not None
        build.stdout.readline()
        time.sleep(moments.uniform(0, 0.12))
        build.send_signal(signal.SIGKILL)
        build.wait(20)
        build.stdout.close()
        for folder in tmp_path.glob("r*-pack-*"):
            manifest = json.loads((folder / MANIFEST).read_text())
            assert {path.name for path in folder.iterdir()} == {MANIFEST, *manifest["outputs"]}
            assert len(manifest["outputs"]) == 20
    before = {folder: os.stat(folder).st_ino for folder in tmp_path.glob("r*-pack-*")}
    subprocess.run([sys.executable, "-c", SLOW, str(tmp_path)], check=True, capture_output=True)
    assert len(list(tmp_path.glob("r*-pack-*"))) == 6
    assert all(os.stat(folder).st_ino == inode for folder, inode in before.items()), "what was finished is reused"
    assert list((tmp_path / ".staging").iterdir()) == []
