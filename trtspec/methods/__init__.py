"""One file per speculative method; the union below is the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, get_args

from pydantic import Field

from trtspec.methods.base import Method
from trtspec.methods.draft_target import DraftTarget
from trtspec.methods.eagle import Eagle
from trtspec.methods.eagle3 import Eagle3
from trtspec.methods.lookahead import Lookahead
from trtspec.methods.medusa import Medusa
from trtspec.methods.mtp import Mtp
from trtspec.methods.ngram import Ngram
from trtspec.methods.none import NoSpeculation
from trtspec.methods.redrafter import ReDrafter
from trtspec.methods.specinfer import SpecInfer
from trtspec.methods.suffix import Suffix

AnyMethod = (
    NoSpeculation | Ngram | Suffix | Lookahead | DraftTarget | SpecInfer | Medusa | Eagle | Eagle3 | Mtp | ReDrafter
)
Speculation = Annotated[AnyMethod, Field(discriminator="method")]
METHODS: Mapping[str, type[Method]] = {kind.model_fields["method"].default: kind for kind in get_args(AnyMethod)}
LATER = ("pard", "dflash")  # known by name, with no options yet
