from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serving import toy_server
from trtspec.serving.http_client import HttpServer


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[toy_server.Toy]:
    """One real tritonserver for all tests of this folder. The tests share it, so each looks at differences only."""
    toy = toy_server.build(tmp_path_factory.mktemp("toy-triton"))
    toy_server.serve(toy)
    yield toy
    toy_server.stop(toy)
    assert toy_server.left_behind(toy) == []


@pytest.fixture
def http(toy: toy_server.Toy) -> HttpServer:
    return HttpServer(toy.http)
