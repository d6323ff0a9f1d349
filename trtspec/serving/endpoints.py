"""Where a server listens."""

from __future__ import annotations

from dataclasses import dataclass

from trtspec import machine
from trtspec.errors import ServeError
from trtspec.spec.model import Spec


@dataclass(frozen=True)
class Endpoints:
    host: str
    http_port: int
    grpc_port: int
    metrics_port: int

    @staticmethod
    def of(spec: Spec) -> Endpoints:
        serving = spec.serving
        return Endpoints(serving.host, serving.http_port, serving.grpc_port, serving.metrics_port)

    @property
    def http(self) -> str:
        return f"http://{self._reachable}:{self.http_port}"

    @property
    def grpc(self) -> str:
        return f"grpc://{self._reachable}:{self.grpc_port}"

    @property
    def metrics(self) -> str:
        return f"http://{self._reachable}:{self.metrics_port}/metrics"

    def require_free(self, spec: Spec) -> None:
        """Raises ServeError for the first port that is taken."""
        for key in ("http_port", "grpc_port", "metrics_port"):
            port = getattr(self, key)
            line, column = spec.position(f"serving.{key}")
            if machine.busy(self.host, port):
                raise ServeError(
                    f"port {port} of {self.host} is taken (or {self.host} is not an address of this machine)",
                    code="port_busy",
                    where=f"serving.{key}",
                    line=line,
                    column=column,
                    hint=f"stop what listens there, or set serving.{key} to a free port",
                )

    @property
    def _reachable(self) -> str:
        """An address a client on this machine can use."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"[{host}]" if ":" in host else host
