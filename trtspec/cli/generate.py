"""``trtspec generate``: one request to a running server, streamed."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import click

from trtspec.serving.client import DEFAULT_URL


@click.command()
@click.argument("prompt", metavar="PROMPT")
@click.option(
    "--url", metavar="U", default=DEFAULT_URL, show_default=True, help="http://host:port or grpc://host:port."
)
@click.option("--model", metavar="M", help="Default: the server's only front.")
@click.option("--route", metavar="R", help="The route of the spec this request belongs to.")
@click.option("--speculation", type=click.Choice(["auto", "on", "off"]), help="Default: auto.")
@click.option("--max-tokens", type=int, metavar="N", help="Default: 128.")
@click.option("--temperature", type=float, metavar="T", help="Default: 0, greedy.")
@click.option("--top-k", type=int, metavar="K")
@click.option("--top-p", type=float, metavar="P")
@click.option("--seed", type=int, metavar="S", help="Drawn and reported when absent.")
@click.option("--stop", "stop_words", multiple=True, metavar="W", help="End before this text; may be repeated.")
@click.option("--chat", is_flag=True, help="PROMPT is a user's message: apply the chat template.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole answer as JSON.")
def command(url: str, model: str | None, as_json: bool, **options: Any) -> None:
    """Send PROMPT to a running server and print the answer as it comes.

    More than the options here can be asked over HTTP or gRPC: see docs/requests.md.
    """
    from trtspec.serving.client import connect, front_of
    from trtspec.serving.document import Transcript

    server = connect(url)
    transcript = Transcript()
    with contextlib.closing(server.stream(front_of(server, model), _fields(**options))) as responses:
        for outputs in responses:
            chunk = transcript.push(outputs)
            if not as_json:
                click.echo(chunk, nl=False)
    document = transcript.document()
    if as_json:
        click.echo(json.dumps(document))
    else:
        click.echo()
        click.echo(_facts(document), err=True)


def _fields(prompt: str, chat: bool, stop_words: tuple[str, ...], **options: Any) -> dict[str, Any]:
    """The request in the front's own words; what was not given is left to the server."""
    source = {"messages": json.dumps([{"role": "user", "content": prompt}])} if chat else {"text_input": prompt}
    given = {name: value for name, value in options.items() if value is not None}
    return {**source, **given, **({"stop_words": list(stop_words)} if stop_words else {})}


def _facts(document: dict[str, Any]) -> str:
    usage, timing, speculation = document["usage"], document["timing"], document["speculation"]
    parts = [f"{usage['completion_tokens']} tokens ({document['finish_reason']})"]
    if timing["tokens_per_s"] is not None:
        parts.append(f"{timing['tokens_per_s']:.1f} tokens/s")
    if speculation["enabled"] and speculation["acceptance_rate"] is not None:
        parts.append(
            f"acceptance {speculation['acceptance_rate']:.0%} at draft length {speculation['max_draft_len']}, "
            f"{speculation['acceptance_length']:.2f} tokens a step"
        )
    elif not speculation["enabled"]:
        parts.append(f"plain: {speculation['reason']}")
    return "; ".join([f"route {document['route']}", *parts])
