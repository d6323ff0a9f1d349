"""The front's knowledge of its engine: up or not yet, and whether its process still lives."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from trtspec.errors import ServeError
from trtspec.process import alive
from trtspec.runtime.types import Capabilities
from trtspec.triton.engines.reference import Hello, ReferenceEngine

log = logging.getLogger("trtspec.front")

RETRY_SECONDS = 0.1
WAIT_SECONDS = 600.0  # for an engine that is still loading


class Link:
    """Models load in any order, so the engine is called until it answers; ``on_hello`` is then called once."""

    def __init__(self, engine: ReferenceEngine, on_hello: Callable[[Capabilities], None]) -> None:
        self._engine = engine
        self._on_hello = on_hello
        self._hello: Hello | None = None
        self._up = threading.Event()
        self._end = threading.Event()
        self._lost: str | None = None
        self._thread = threading.Thread(target=self._connect, name="trtspec-link", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Returns when the engine is up. Raises ServeError when it is gone or does not come."""
        if not self._up.wait(WAIT_SECONDS):
            raise ServeError(f"the engine did not come up within {WAIT_SECONDS:.0f} s", code="engine_not_up")
        lost = self.lost()
        if lost is not None:
            raise ServeError(lost, code="engine_gone")

    def lost(self) -> str | None:
        if self._lost is None and self._hello is not None and not alive(self._hello.pid):
            self._lost = f"the engine's process ({self._hello.pid}) has died; the server must be started again"
            log.error(self._lost)
        return self._lost

    def close(self) -> None:
        self._end.set()
        self._thread.join(timeout=1)

    def _connect(self) -> None:
        while not self._end.wait(RETRY_SECONDS):
            try:
                hello = self._engine.hello()
            except Exception as error:  # not loaded yet
                log.debug("the engine is not up yet: %s", error)
                continue
            self._on_hello(hello.capabilities)
            self._hello = hello
            self._up.set()
            return
