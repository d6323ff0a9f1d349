"""What each route has done since the server started: the ``routes`` of ``trtspec status``."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from trtspec.front.accounting import Counts
from trtspec.front.settings import FrontSettings, RouteSettings


@dataclass
class Route:
    requests: int = 0
    counts: Counts = field(default_factory=Counts)


class Routes:
    """Bounded by the settings; safe from several threads."""

    def __init__(self, settings: FrontSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._routes = {name: Route(counts=Counts(settings.max_draft_len)) for name in settings.routes}

    def record(self, route: str, counts: Counts) -> None:
        with self._lock:
            entry = self._routes[route]
            entry.requests += 1
            entry.counts = entry.counts + counts

    def enabled(self) -> dict[str, bool]:
        return {name: state(self._settings, route)[0] for name, route in self._settings.routes.items()}

    def to_dict(self) -> dict[str, Any]:
        with self._lock:
            return {name: self._entry(name, route) for name, route in self._routes.items()}

    def _entry(self, name: str, route: Route) -> dict[str, Any]:
        enabled, reason = state(self._settings, self._settings.routes[name])
        return {"requests": route.requests, "enabled": enabled, "reason": reason, **route.counts.to_dict()}


def state(settings: FrontSettings, route: RouteSettings) -> tuple[bool, str]:
    """Whether requests of a route speculate unless they say otherwise, and why."""
    if settings.method == "none" or settings.max_draft_len == 0:
        return False, f"built without speculation (method {settings.method}, max_draft_len {settings.max_draft_len})"
    if route.speculation == "never":
        return False, "the route never speculates"
    if route.max_draft_len == 0:
        return False, "the route's max_draft_len is 0"
    if route.speculation == "always":
        return True, "the route always speculates"
    return True, "unmeasured: on until measured"
