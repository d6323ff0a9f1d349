"""A few threads that work off what comes for many requests: what comes for one request stays in order."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
from collections.abc import Callable

log = logging.getLogger("trtspec.front")

LANES = 8  # Python runs one of them at a time anyway; several, since sending waits for Triton

Work = Callable[[], None]


class Lanes:
    def __init__(self, count: int = LANES) -> None:
        self._queues: list[queue.SimpleQueue[Work | None]] = [queue.SimpleQueue() for _ in range(count)]
        self._turns = itertools.count()
        self._threads = [
            threading.Thread(target=_loop, args=(lane,), name="trtspec-lane", daemon=True) for lane in self._queues
        ]
        for thread in self._threads:
            thread.start()

    def pick(self) -> Callable[[Work], None]:
        """A lane for one request."""
        return self._queues[next(self._turns) % len(self._queues)].put

    def close(self) -> None:
        for lane in self._queues:
            lane.put(None)


def _loop(lane: queue.SimpleQueue[Work | None]) -> None:
    while (work := lane.get()) is not None:
        try:
            work()
        except BaseException:  # one request's failure must not end the lane of others
            log.exception("a request's step failed")
