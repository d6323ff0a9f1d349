"""``trtspec plan``: the steps of a build, shown and not run."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.argument("spec_file", metavar="SPEC", type=click.Path(path_type=Path))
@click.option("--engines", default="engines", show_default=True, type=click.Path(path_type=Path), help="The store.")
@click.option(
    "--model-repo", default="model_repo", show_default=True, type=click.Path(path_type=Path), help="Triton's models."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(spec_file: Path, engines: Path, model_repo: Path, as_json: bool) -> None:
    """The ordered steps of a build.

    Each with its exact command line, inputs, output, content key, whether it is cached, and the memory and disk it
    takes. Runs nothing and fetches nothing: what is not on disk yet has no key.
    """
    from trtspec.artifacts import plan_of
    from trtspec.plan import render
    from trtspec.spec.load import load_spec

    planned = plan_of(load_spec(spec_file), engines, model_repo)
    click.echo(json.dumps(planned.to_dict()) if as_json else render(planned), nl=as_json)
