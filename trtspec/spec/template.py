"""The commented specs that ``trtspec init`` hands out: one for each method, and one that runs on any CPU."""

from __future__ import annotations

from importlib.resources import files

from trtspec.errors import SpecError
from trtspec.methods import METHODS
from trtspec.spec.keys import nearest

DEMO = "cpu-demo"
TEMPLATES = (DEMO, *METHODS)


def template(name: str) -> str:
    """The template's text. Raises SpecError with the names there are."""
    if name not in TEMPLATES:
        near = nearest(name, TEMPLATES)
        hint = f"did you mean {near}? " if near else ""
        raise SpecError(
            f'there is no template "{name}"',
            code="unknown_template",
            where="--template",
            hint=f"{hint}templates: {', '.join(TEMPLATES)}",
        )
    return files("trtspec.spec").joinpath("templates", f"{name}.yaml").read_text(encoding="utf-8")
