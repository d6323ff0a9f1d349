"""``trtspec check``: what is wrong with a spec, or worth knowing, before any work."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from trtspec.check_facts import ModelFacts
    from trtspec.finding import Finding
    from trtspec.methods.model import Checkpoint
    from trtspec.spec.model import Spec

ENGINES = Path("engines")


@click.command()
@click.argument("spec_file", metavar="SPEC", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(spec_file: Path, as_json: bool) -> None:
    """Everything that can be known before work.

    Reads the spec, the headers and tokenizers of models that are on disk, and this machine; uses no network. Exit 1
    when a finding is an error.
    """
    from trtspec.finding import passes

    findings = _findings(spec_file)
    good = passes(findings)
    if as_json:
        click.echo(
            json.dumps({"ok": good, "findings": [finding.to_dict() for finding in findings]}, ensure_ascii=False)
        )
    else:
        click.echo(render(findings))
    if not good:
        raise SystemExit(1)


def _findings(spec_file: Path) -> list[Finding]:
    from trtspec.check import check
    from trtspec.check_facts import CheckFacts
    from trtspec.finding import finding_of
    from trtspec.known import models_of
    from trtspec.machine import read_machine
    from trtspec.spec.load import read_spec

    loaded = read_spec(spec_file)
    if loaded.spec is None:
        return [finding_of(error) for error in loaded.errors]
    spec = loaded.spec
    models = {role: _facts(spec, model) for role, model in models_of(spec).items()}
    ports = (spec.serving.http_port, spec.serving.grpc_port, spec.serving.metrics_port)
    machine = read_machine(ENGINES.absolute(), dict.fromkeys(ports, spec.serving.host))
    return check(spec, CheckFacts({role: facts for role, facts in models.items() if facts is not None}, machine))


def _facts(spec: Spec, model: Checkpoint) -> ModelFacts | None:
    """None where the model is not on disk."""
    from trtspec.check_facts import ModelFacts
    from trtspec.checkpoints.facts import read_facts
    from trtspec.checkpoints.tokenizer import load_tokenizer
    from trtspec.errors import TrtspecError
    from trtspec.inventory import locate

    headers = None
    try:
        path = locate(spec, model)
        if path is None:
            return None
        headers = read_facts(path)
        return ModelFacts(headers, load_tokenizer(path if model.tokenizer is None else spec.folder / model.tokenizer))
    except TrtspecError as error:
        return ModelFacts(headers, problem=error)


def render(findings: list[Finding]) -> str:
    """The findings for people."""
    lines = []
    for finding in findings:
        place = "" if finding.line is None else f"{finding.line}:{finding.column}: "
        where = "" if finding.where is None or finding.where in finding.message else f"{finding.where}: "
        lines.append(f"{finding.severity}: {place}{where}{finding.message}")
        lines += [f"  {finding.hint}"] if finding.hint else []
    counts = Counter(finding.severity for finding in findings)
    said = [f"{counts[name]} {name}{'s' if counts[name] != 1 else ''}" for name in ("error", "warning") if counts[name]]
    return "\n".join([*lines, ", ".join(said) or "ok"])
