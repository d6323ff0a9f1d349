"""A stand-in of the hub's HTTP interface on 127.0.0.1: revisions, heads and files, as huggingface_hub asks for them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """One repository, ``org/model``, whose files are those below ``folder``. ``asked`` is every path that was asked."""

    folder: Path
    url: str = ""
    status: int = 200  # 401, 403, 404 ... answers everything with it
    error_code: str = ""
    lie: bool = False  # whether large files differ from their announced hash
    asked: list[str] = field(default_factory=list)

    def files(self) -> dict[str, Path]:
        return {str(f.relative_to(self.folder)): f for f in sorted(self.folder.rglob("*")) if f.is_file()}


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Hub]:
    hub = Hub(folder)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def log_message(self, *_: object) -> None:
            """Silent."""

        def _answer(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.asked.append(path)
            if hub.status != 200:
                self._send(b"{}", hub.status, {"X-Error-Code": hub.error_code})
            elif path.startswith("/api/models/org/model/revision/"):
                self._revision(path.rpartition("/")[2])
            elif path.startswith("/api/models/org/model/tree/"):
                entries = [_entry(name, file) for name, file in hub.files().items()]
                self._send(json.dumps(entries).encode(), 200, {"Content-Type": "application/json"})
            elif path.startswith(f"/org/model/resolve/{COMMIT}/"):
                self._file(path.removeprefix(f"/org/model/resolve/{COMMIT}/"))
            else:
                self._send(b"{}", 404, {"X-Error-Code": "RepoNotFound"})

        def _revision(self, revision: str) -> None:
            if revision not in ("main", COMMIT):
                self._send(b"{}", 404, {"X-Error-Code": "RevisionNotFound"})
                return
            siblings = [{"rfilename": name} for name in hub.files()]
            info = {"id": "org/model", "modelId": "org/model", "sha": COMMIT, "siblings": siblings}
            self._send(json.dumps(info).encode(), 200, {"Content-Type": "application/json"})

        def _file(self, name: str) -> None:
            file = hub.files().get(name)
            if file is None:
                self._send(b"{}", 404, {"X-Error-Code": "EntryNotFound"})
                return
            content = file.read_bytes()
            etag = _etag(name, content)
            sent = content[:-1] + b"?" if hub.lie and len(etag) == 64 else content
            self._send(sent, 200, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT})

        def _send(self, body: bytes, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _etag(name: str, content: bytes) -> str:
    """Large files are known by their SHA-256, others by git's blob hash."""
    if name.endswith(".safetensors"):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _entry(name: str, file: Path) -> dict[str, object]:
    content = file.read_bytes()
    entry: dict[str, object] = {"type": "file", "path": name, "size": len(content), "oid": _etag(name, content)}
    if name.endswith(".safetensors"):
        entry["lfs"] = {"oid": _etag(name, content), "size": len(content), "pointerSize": 134}
    return entry
