from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serving import toy_server


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> toy_server.Toy:
    """Built, not served."""
    return toy_server.build(tmp_path_factory.mktemp("toy-serving"))


@pytest.fixture
def served(toy: toy_server.Toy) -> Iterator[toy_server.Toy]:
    """Served for one test alone."""
    toy_server.serve(toy)
    yield toy
    toy_server.stop(toy)
