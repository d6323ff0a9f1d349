"""``trtspec build``: does the plan, then writes the Triton model repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtspec.errors import StoreError

if TYPE_CHECKING:
    from trtspec.artifacts import Artifacts
    from trtspec.spec.model import Spec


@click.command()
@click.argument("spec_file", metavar="SPEC", type=click.Path(path_type=Path))
@click.option("--engines", default="engines", show_default=True, type=click.Path(path_type=Path), help="The store.")
@click.option(
    "--model-repo", default="model_repo", show_default=True, type=click.Path(path_type=Path), help="Triton's models."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(spec_file: Path, engines: Path, model_repo: Path, as_json: bool) -> None:
    """Do the plan, then write the Triton model repository.

    Every output is kept under the hash of what made it, so a second build does only what changed; one that was stopped
    goes on where it was.
    """
    from trtspec.artifacts import building
    from trtspec.cli.progress import Bar, say
    from trtspec.spec.load import load_spec

    spec = load_spec(spec_file)
    _require_place(model_repo)
    with building(spec, engines, say, model_repo=model_repo, advance=Bar()) as (planned, artifacts):
        _write_repository(spec, artifacts, planned.model_repo)
    say(f"repository: {planned.model_repo}")
    if as_json:
        made = [artifact.to_dict() for artifact in artifacts.values()]
        click.echo(json.dumps({"artifacts": made, "repository": str(planned.model_repo)}))


def _require_place(model_repo: Path) -> None:
    """A name that no folder can have is refused before any work."""
    try:
        model_repo.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(
            f"{model_repo} cannot be the model repository: {error.strerror}",
            code="repository_write",
            where=str(model_repo),
            hint="name another folder with --model-repo",
        ) from error


def _write_repository(spec: Spec, artifacts: Artifacts, path: Path) -> None:
    from trtspec.checkpoints.tokenizer import load_tokenizer
    from trtspec.deploy import engine_options, front_settings, packed_facts
    from trtspec.repository.layout import lay_out

    folder = artifacts["target"].path
    facts = packed_facts((folder / "config.json").read_text(encoding="utf-8"))
    options = engine_options(spec, facts, artifacts, vocab_size=load_tokenizer(folder).vocab_size)
    lay_out(spec, front_settings(spec, facts), options, folder).write(path)
