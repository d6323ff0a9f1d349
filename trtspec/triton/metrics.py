"""The custom metrics on Triton's metrics port (design section 5).

Increments from two threads at once end the server with a segmentation fault (seen in 2.51), so one lock guards all.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from trtspec.front.accounting import Counts
from trtspec.front.settings import FrontSettings

COUNTERS: Mapping[str, str] = {
    "trtspec_requests_total": "Requests handed to the engine and ended, also by cancel.",
    "trtspec_steps_total": "Target passes that gave tokens to the user; prefill passes are left out.",
    "trtspec_draft_tokens_total": "Draft tokens that a target pass verified.",
    "trtspec_judged_tokens_total": "Draft tokens accepted, plus first rejections.",
    "trtspec_accepted_tokens_total": "Draft tokens kept.",
    "trtspec_emitted_tokens_total": "Tokens given to the user by counted steps.",
}
POSITIONS = "trtspec_accepted_at_position_total"
ENABLED = "trtspec_speculation_enabled"
DECISIONS = "trtspec_gate_decisions_total"


class Metrics:
    """Every series exists at 0 from the start: routes and positions are bounded by the settings.

    ``backend`` is ``triton_python_backend_utils`` (its MetricFamily), handed in.
    """

    def __init__(self, backend: Any, settings: FrontSettings, enabled: Mapping[str, bool]) -> None:
        self._lock = threading.Lock()
        self._families: list[Any] = []  # a metric dies with its family
        labels = {
            route: {"model": settings.name, "route": route, "method": settings.method} for route in settings.routes
        }
        self._counters = {
            name: self._series(backend, name, text, labels, [{}], "COUNTER") for name, text in COUNTERS.items()
        }
        positions = [{"position": str(position)} for position in range(1, settings.max_draft_len + 1)]
        self._positions = self._series(
            backend, POSITIONS, "Draft tokens kept at this position of the draft.", labels, positions, "COUNTER"
        )
        gauges = self._series(backend, ENABLED, "1 where the route speculates now.", labels, [{}], "GAUGE")
        for route, on in enabled.items():
            gauges[route][0].set(float(on))
        self._gauges = gauges
        self._decisions = self._series(
            backend, DECISIONS, "Times the gate changed a route.", labels, [{"to": "on"}, {"to": "off"}], "COUNTER"
        )

    def record(self, route: str, counts: Counts) -> None:
        """One request of ``route`` has ended."""
        sums = (1, counts.steps, counts.drafted, counts.judged, counts.accepted, counts.emitted)
        with self._lock:
            for series, amount in zip(self._counters.values(), sums, strict=True):
                _add(series[route][0], amount)
            for metric, amount in zip(self._positions[route], counts.accepted_at, strict=False):
                _add(metric, amount)

    def _series(
        self,
        backend: Any,
        name: str,
        text: str,
        labels: Mapping[str, Mapping[str, str]],
        more: Sequence[Mapping[str, str]],
        kind: str,
    ) -> dict[str, list[Any]]:
        """Route -> one metric for each entry of ``more`` (further labels)."""
        family = backend.MetricFamily(name=name, description=text, kind=getattr(backend.MetricFamily, kind))
        self._families.append(family)
        return {
            route: [family.Metric(labels={**common, **further}) for further in more] for route, common in labels.items()
        }


def _add(metric: Any, amount: int) -> None:
    if amount:
        metric.increment(float(amount))
