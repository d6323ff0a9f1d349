"""A running server by its URL."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Protocol

from trtspec.serving.document import the_front
from trtspec.serving.http_client import HttpServer

DEFAULT_URL = "http://127.0.0.1:8000"


class RunningServer(Protocol):
    url: str

    def ready(self) -> bool: ...

    def fronts(self) -> list[str]: ...

    def command(self, model: str, command: str) -> dict[str, Any]: ...

    def stream(self, model: str, fields: Mapping[str, Any]) -> Generator[dict[str, Any], None, None]: ...


def connect(url: str) -> RunningServer:
    """``http://host:port`` or ``grpc://host:port``. Nothing is sent yet."""
    if url.startswith("grpc:"):
        from trtspec.serving.grpc_client import GrpcServer  # brings tritonclient and numpy

        return GrpcServer(url)
    return HttpServer(url)


def front_of(server: RunningServer, model: str | None) -> str:
    """The model asked for, else the only one that can be meant."""
    return model or the_front(server.fronts(), server.url)
