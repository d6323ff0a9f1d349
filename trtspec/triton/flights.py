"""The requests in flight, and the watcher that ends those whose client or engine is gone."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger("trtspec.front")

WATCH_SECONDS = 0.05  # between two looks of the watcher
IDLE_SECONDS = 0.1  # without a step: a flight that steps is asked at every step by its own reader
AGAIN_SECONDS = 0.5  # before a cancel is said again, in case it came before the request itself


class Client(Protocol):
    """The part of an Answer that matters here."""

    def gone(self) -> bool: ...


class Flight:
    """``cancel`` asks whoever works on it to end; it may be called more than once, from any thread."""

    def __init__(self, request_id: str, client: Client, cancel: Callable[[], None]) -> None:
        self.request_id = request_id
        self.client = client
        self.cancelled = False
        self._cancel = cancel
        self._moved = time.monotonic()
        self._said = 0.0

    def step(self) -> None:
        """One step has come. The cost is one message to Triton, about 0.06 ms in 2.51."""
        self._moved = time.monotonic()
        if self.client.gone():
            self.cancel()

    def look(self) -> None:
        now = time.monotonic()
        if now - self._moved > IDLE_SECONDS and (self.cancelled or self.client.gone()):
            self.cancel()

    def cancel(self) -> None:
        self.cancelled = True
        if time.monotonic() - self._said > AGAIN_SECONDS:
            self._said = time.monotonic()
            self._cancel()


class Flights:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flights: set[Flight] = set()

    def __len__(self) -> int:
        return len(self._flights)

    def add(self, request_id: str, client: Client, cancel: Callable[[], None]) -> Flight:
        flight = Flight(request_id, client, cancel)
        with self._lock:
            self._flights.add(flight)
        return flight

    def discard(self, flight: Flight) -> None:
        with self._lock:
            self._flights.discard(flight)

    def all(self) -> list[Flight]:
        with self._lock:
            return list(self._flights)

    def cancel(self, request_id: str) -> int:
        """Cancels every flight of that id; how many there were."""
        named = [flight for flight in self.all() if flight.request_id == request_id]
        for flight in named:
            flight.cancel()
        return len(named)


class Watcher:
    """``on_lost`` is told, while it is so, in words, that what the flights wait for is gone (``lost``).

    Nobody else can see it: Triton 2.51 leaves a call to a model whose process has died without an answer.
    """

    def __init__(
        self,
        flights: Flights,
        lost: Callable[[], str | None] = lambda: None,
        on_lost: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._flights = flights
        self._lost = lost
        self._on_lost = on_lost
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="trtspec-watcher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._end.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._end.wait(WATCH_SECONDS):
            try:
                self._look()
            except Exception:  # one flight's failure must not end the watch over the others
                log.exception("the watcher failed on a request")

    def _look(self) -> None:
        lost = self._lost()
        if lost is not None:
            self._on_lost(lost)
            return
        for flight in self._flights.all():
            flight.look()
