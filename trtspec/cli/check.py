"""``trtspec check``: what is wrong with a spec, or worth knowing, before any work."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from trtspec.finding import Finding

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
        click.echo(json.dumps({"ok": good, "findings": [finding.to_dict() for finding in findings]}))
    else:
        click.echo(render(findings))
    if not good:
        raise SystemExit(1)


def _findings(spec_file: Path) -> list[Finding]:
    from trtspec.examine import examine
    from trtspec.finding import finding_of
    from trtspec.spec.load import read_spec

    loaded = read_spec(spec_file)
    if loaded.spec is None:
        return [finding_of(error) for error in loaded.errors]
    serving = loaded.spec.serving
    ports = (serving.http_port, serving.grpc_port, serving.metrics_port)
    return examine(loaded.spec, ENGINES, dict.fromkeys(ports, serving.host))


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
