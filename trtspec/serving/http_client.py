"""Asks a server over HTTP with the standard library alone, so that ``trtspec generate`` starts at once."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Generator, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from trtspec.errors import ServeError
from trtspec.repository.interface import is_front

TIMEOUT_SECONDS = 600.0  # between two pieces of an answer
PROBE_SECONDS = 5.0


_HOST = re.compile(r"[A-Za-z0-9_.:%-]{1,253}")


def address_of(url: str, scheme: str, port: int) -> tuple[str, int]:
    """Host and port of a URL, ``port`` where it names none. Raises ServeError."""
    try:
        parts = urlsplit(url)
        host, given = parts.hostname or "", parts.port
    except ValueError as error:
        raise _bad_url(url, f": {error}") from error
    if parts.scheme != scheme or not _HOST.fullmatch(host):
        raise _bad_url(url, "")
    return host, port if given is None else given


def _bad_url(url: str, why: str) -> ServeError:
    return ServeError(
        f"{url!r} is no URL of a server{why}", code="bad_url", hint="write http://host:port or grpc://host:port"
    )


class HttpServer:
    def __init__(self, url: str) -> None:
        self._host, self._port = address_of(url, "http", 8000)
        self.url = url.rstrip("/")

    def ready(self) -> bool:
        """Whether the server says so; what stands behind it is another question."""
        try:
            return self._ask("GET", "/v2/health/ready", timeout=PROBE_SECONDS)[0] == 200
        except ServeError:
            return False

    def fronts(self) -> list[str]:
        status, body = self._ask("POST", "/v2/repository/index", {"ready": True})
        if status != 200:
            raise _refused(body)
        return [entry["name"] for entry in json.loads(body) if is_front(entry["name"])]

    def command(self, model: str, command: str) -> dict[str, Any]:
        """What the front answers to a command of its own (``status``, ``probe``)."""
        status, body = self._ask("POST", f"/v2/models/{quote(model, safe='')}/generate", {"command": command})
        if status != 200:
            raise _refused(body)
        answer: dict[str, Any] = json.loads(json.loads(body)["status"])
        return answer

    def stream(self, model: str, fields: Mapping[str, Any]) -> Generator[dict[str, Any], None, None]:
        """The outputs of each response, as they come. Closing the iterator early cancels the request."""
        connection = self._connect(TIMEOUT_SECONDS)
        try:
            with _explained(self.url):
                body = json.dumps({**fields, "stream": True})
                connection.request("POST", f"/v2/models/{quote(model, safe='')}/generate_stream", body)
                response = connection.getresponse()
                if response.status != 200:
                    raise _refused(response.read())
                yield from _events(response)
        finally:
            connection.close()

    def _ask(
        self, verb: str, path: str, body: Mapping[str, Any] | None = None, timeout: float = TIMEOUT_SECONDS
    ) -> tuple[int, bytes]:
        connection = self._connect(timeout)
        try:
            with _explained(self.url):
                connection.request(verb, path, None if body is None else json.dumps(body))
                response = connection.getresponse()
                return response.status, response.read()
        finally:
            connection.close()

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout)


def no_server(url: str, reason: str) -> ServeError:
    """Names the logs of a server of ours that was there before: the cause may be in them."""
    from trtspec.serving.record import logs_of  # not wanted as long as the server answers

    logs = " and ".join(map(str, logs_of(url)))
    before = f"; the logs of the last one there: {logs}" if logs else ""
    return ServeError(
        f"no server answers at {url}: {reason}",
        code="no_server",
        where=url,
        hint=f"start one with `trtspec serve SPEC`, or name another with --url{before}",
    )


class _explained:
    """Turns what a broken connection raises into one ServeError."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, (OSError, http.client.HTTPException, UnicodeError)):  # UnicodeError: of a host's name
            raise no_server(self._url, str(error) or type(error).__name__) from error


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The documents of a text/event-stream."""
    for line in response:
        if not line.startswith(b"data:"):
            continue
        document = json.loads(line[5:])
        if "error" in document:
            raise _refused(line)
        yield document


def _refused(body: bytes) -> ServeError:
    try:
        message = str(json.loads(body.removeprefix(b"data:"))["error"])  # generate_stream refuses as an event
    except (ValueError, KeyError, TypeError):
        message = body.decode(errors="replace") or "no reason given"
    return ServeError(message, code="refused")
