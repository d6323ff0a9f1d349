"""Is a request decoded speculatively? Precedence: design section 7; every answer has a reason in words."""

from __future__ import annotations

from dataclasses import dataclass

from trtspec.errors import RequestError
from trtspec.front.request import Request
from trtspec.front.settings import FrontSettings, OffWhen, RouteSettings


@dataclass(frozen=True)
class Decision:
    """``max_draft_len`` is 0 exactly when not enabled."""

    enabled: bool
    reason: str
    max_draft_len: int


@dataclass(frozen=True)
class Load:
    """What ``off_when`` looks at. ``in_flight`` counts the requests in the engine, this one included."""

    prompt_tokens: int
    in_flight: int = 1


def decide(request: Request, route_name: str, settings: FrontSettings, load: Load) -> Decision:
    """Raises RequestError for a draft length above what was built, and for a wish against the route or the method."""
    route = settings.routes[route_name]
    draft_len = _draft_len(request, route_name, route, settings)
    _refuse_impossible_wish(request, route_name, route, settings)
    off = _reason_off(request, route_name, route, settings, draft_len)
    if off is not None:
        return Decision(False, off, 0)
    if request.speculation == "on":
        return Decision(True, "the request asks for speculation", draft_len)
    if route.speculation == "always":
        return Decision(True, f'route "{route_name}" always speculates', draft_len)
    off = _reason_off_when(request, settings.off_when, load)
    if off is not None:
        return Decision(False, off, 0)
    return Decision(True, f'route "{route_name}" is unmeasured: on until measured', draft_len)


def _draft_len(request: Request, route_name: str, route: RouteSettings, settings: FrontSettings) -> int:
    limit, owner = settings.max_draft_len, f"method {settings.method}"
    if route.max_draft_len is not None and route.max_draft_len <= limit:
        limit, owner = route.max_draft_len, f'route "{route_name}"'
    wanted = request.max_draft_len
    if wanted is None:
        return limit
    if wanted > limit:
        raise RequestError(
            "max_draft_len",
            f"max_draft_len must be from 0 to {limit} ({owner} drafts at most {limit}), not {wanted}",
            hint="0 is plain decoding",
        )
    return wanted


def _refuse_impossible_wish(request: Request, route_name: str, route: RouteSettings, settings: FrontSettings) -> None:
    if request.speculation != "on":
        return
    if route.speculation == "never":
        raise RequestError(
            "speculation", f'speculation "on" is refused: route "{route_name}" is set to never speculate'
        )
    if settings.method == "none" or settings.max_draft_len == 0:
        raise RequestError(
            "speculation",
            f'speculation "on" is refused: {settings.name} was built without speculation '
            f"(method {settings.method}, max_draft_len {settings.max_draft_len})",
        )


def _reason_off(
    request: Request, route_name: str, route: RouteSettings, settings: FrontSettings, draft_len: int
) -> str | None:
    if request.speculation == "off":
        return "the request switches speculation off"
    if route.speculation == "never":
        return f'route "{route_name}" never speculates'
    if settings.method == "none":
        return "built without speculation (method none)"
    if draft_len == 0:
        return "max_draft_len is 0"
    return None


def _reason_off_when(request: Request, bounds: OffWhen, load: Load) -> str | None:
    checks = (
        ("batch_above", load.in_flight, bounds.batch_above, 1),
        ("prompt_tokens_above", load.prompt_tokens, bounds.prompt_tokens_above, 1),
        ("temperature_above", request.temperature, bounds.temperature_above, 1),
        ("max_tokens_below", request.max_tokens, bounds.max_tokens_below, -1),
    )
    for name, value, bound, sign in checks:
        if bound is not None and sign * (value - bound) > 0:
            return f"off_when.{name} {bound}: this request has {value:g}"
    return None
