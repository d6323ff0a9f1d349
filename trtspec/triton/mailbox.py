"""The steps that wait for the front, and the front's pull that waits for steps."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

log = logging.getLogger("trtspec.engine")

PULL_SECONDS = 0.5  # a pull is answered empty after this, so that a server that stops never waits for it long

Send = Callable[[Any, dict[str, Any]], None]  # to a response sender, one answer


class Mailbox:
    """``put`` is cheap, for the engine's own thread; a thread of the mailbox's own talks to Triton."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._wake = threading.Condition()
        self._events: list[dict[str, Any]] = []
        self._pull: Any = None
        self._until = 0.0
        self._closing = False
        self._thread = threading.Thread(target=self._loop, name="trtspec-mailbox", daemon=True)
        self._thread.start()

    def put(self, event: dict[str, Any]) -> None:
        with self._wake:
            self._events.append(event)
            if self._pull is not None:
                self._wake.notify()

    def pull(self, sender: Any) -> None:
        """The answer, when there is one, takes all that waits. An older pull is answered empty."""
        with self._wake:
            before, self._pull = self._pull, sender
            self._until = time.monotonic() + PULL_SECONDS
            self._wake.notify()
        if before is not None:
            self._send(before, {"events": []})

    def close(self) -> None:
        """Answers the pull that waits, then ends."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def _loop(self) -> None:
        while not self._closing:
            sender, events = self._take()
            if sender is None:
                continue
            try:
                self._send(sender, {"events": events})
            except Exception:  # the front is gone, and its requests with it
                log.exception("steps could not be sent")

    def _take(self) -> tuple[Any, list[dict[str, Any]]]:
        with self._wake:
            while not self._closing:
                left = self._until - time.monotonic()
                if self._pull is not None and (self._events or left <= 0):
                    break
                self._wake.wait(None if self._pull is None else left)
            sender, self._pull = self._pull, None
            events: list[dict[str, Any]] = []
            if sender is not None:
                events, self._events = self._events, []
            return sender, events
