"""``trtspec status``: what a running server says of itself."""

from __future__ import annotations

import json
from typing import Any

import click

from trtspec.serving.client import DEFAULT_URL


@click.command()
@click.option(
    "--url", metavar="U", default=DEFAULT_URL, show_default=True, help="http://host:port or grpc://host:port."
)
@click.option("--model", metavar="M", help="Default: the server's only front.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(url: str, model: str | None, as_json: bool) -> None:
    """Print what a running server says of itself. Exit 1 when none answers."""
    from trtspec.serving.client import connect, front_of

    server = connect(url)
    document = server.command(front_of(server, model), "status")
    document["ready"] = document["ready"] and server.ready()
    click.echo(json.dumps(document) if as_json else _text(document))


def _text(document: dict[str, Any]) -> str:
    head = (
        f"{document['name']}: {'ready' if document['ready'] else 'not ready'}, runtime {document['runtime']}, "
        f"method {document['method']}\n"
        f"{document['active']} active, {document['queued']} queued, "
        f"{document['kv_tokens_used']} of {document['kv_tokens_total']} KV tokens used"
    )
    return "\n".join([head, *(_route(name, route) for name, route in document["routes"].items())])


def _route(name: str, route: dict[str, Any]) -> str:
    state = "on" if route["enabled"] else "off"
    rate = route["token_acceptance"]
    measured = "" if rate is None else f", token acceptance {rate:.1%}, {route['acceptance_length']:.2f} tokens a step"
    return f"  {name}: {state} ({route['reason']}), {route['requests']} requests{measured}"
