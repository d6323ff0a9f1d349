"""Is the repository on the disk the one of this spec and of what was built for it?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtspec.artifacts import Artifact, built
from trtspec.deploy import engine_options, front_settings, packed_facts
from trtspec.errors import ServeError
from trtspec.examine import require_good
from trtspec.repository.interface import engine_name, front_name
from trtspec.runtime.options import EngineOptions
from trtspec.spec.model import Spec


def require_built(spec: Spec, engines: Path, model_repo: Path) -> None:
    """Raises BuildError or ServeError, each naming ``trtspec build``, unless all is there and belongs together."""
    artifacts = built(spec, engines)
    require_good(spec, engines)
    front, engine = (_decided(spec, model_repo, name(spec.name)) for name in (front_name, engine_name))
    if _differs(spec, artifacts, front, engine):
        raise ServeError(
            f"{model_repo} was written for another state of the spec or of {engines}",
            code="stale_repository",
            where=str(model_repo),
            hint="run `trtspec build` again: what is built already is reused",
        )


def _differs(
    spec: Spec, artifacts: Mapping[str, Artifact], front: Mapping[str, Any], engine: Mapping[str, Any]
) -> bool:
    facts = packed_facts((artifacts["target"].path / "config.json").read_text())
    options = EngineOptions.from_dict(engine["options"])
    now = engine_options(spec, facts, artifacts, vocab_size=options.vocab_size, device=options.device)
    # Through JSON and back, as the files went: tuples are lists there.
    return bool(
        json.loads(json.dumps(front_settings(spec, facts).to_dict())) != front["settings"]
        or json.loads(json.dumps(now.to_dict())) != engine["options"]
    )


def _decided(spec: Spec, model_repo: Path, model: str) -> dict[str, Any]:
    file = model_repo / model / "1" / "model.yaml"
    try:
        decided: dict[str, Any] = json.loads(file.read_text())
    except FileNotFoundError:
        raise ServeError(
            f"{spec.name} is not built: there is no {file}",
            code="not_built",
            where=str(model_repo),
            hint="run `trtspec build` first, with the same --model-repo",
        ) from None
    except ValueError as error:
        raise ServeError(f"{file} is damaged: {error}", code="stale_repository", hint="run `trtspec build`") from None
    return decided
