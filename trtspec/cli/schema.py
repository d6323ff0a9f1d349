"""``trtspec schema``"""

from __future__ import annotations

import json

import click

from trtspec.spec.schema import spec_schema


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of the spec, for editors.

    \b
    trtspec schema > spec.schema.json
    then, as the first line of a spec:  # yaml-language-server: $schema=spec.schema.json
    """
    click.echo(json.dumps(spec_schema(), indent=2))
