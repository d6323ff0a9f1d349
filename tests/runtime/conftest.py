from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.harness import Open
from tests.runtime.packed import config, random_checkpoint
from trtspec.runtime.engine import LocalEngine
from trtspec.runtime.kernels import LIBRARY, compile_argv
from trtspec.runtime.options import EngineOptions
from trtspec.runtime.types import StopCheckerFactory


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler: native kernels cannot be tested")
    library = tmp_path_factory.mktemp("kernels") / LIBRARY
    subprocess.run(compile_argv(compiler, str(library)), check=True)
    return str(library)


@pytest.fixture(scope="session")
def random_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The random checkpoint of the cases (2 layers, seed 0) and its draft (1 layer, seed 1), float32."""
    folder = tmp_path_factory.mktemp("pair")
    target = random_checkpoint(folder / "target", config(), seed=0)
    draft = random_checkpoint(folder / "draft", config(num_layers=1), seed=1)
    return str(target), str(draft)


@pytest.fixture
def open_engine() -> Iterator[Open]:
    """Opens engines and closes them all at the end."""
    opened: list[LocalEngine] = []

    def open_(
        target: str | Path,
        draft: str | Path | None = None,
        method: str = "none",
        max_draft_len: int = 0,
        stop: StopCheckerFactory | None = None,
        **options: object,
    ) -> LocalEngine:
        settings: dict[str, object] = {"max_seq_len": 128, "max_input_len": 127, **options}
        method_options = {"max_ngram": 3, "min_ngram": 1} if method == "ngram" else {}
        engine = LocalEngine.open(
            EngineOptions(
                str(target),
                None if draft is None else str(draft),
                method,
                method_options,
                max_draft_len,
                **settings,  # type: ignore[arg-type]
            ),
            stop,
        )
        opened.append(engine)
        return engine

    yield open_
    for engine in opened:
        engine.close()
