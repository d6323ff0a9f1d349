"""Logits of a whole text, computed in passes of a chosen number of rows: what the noise floor is measured with."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch

from trtspec.runtime.batch import Span
from trtspec.runtime.cache import allocate_cache
from trtspec.runtime.engine import device_of, open_decoder
from trtspec.runtime.options import EngineOptions


@torch.inference_mode()
def score(options: EngineOptions, ids: Seq[int], rows: int) -> torch.Tensor:
    """[len(ids), V] float32: row i holds the logits after ids[0..i], each pass taking in ``rows`` tokens."""
    config, model = open_decoder(options, options.target)
    cache = allocate_cache(config, len(ids), model.dtype, device_of(options))
    passes = [Span(list(ids[at : at + rows]), 0, at, 0) for at in range(0, len(ids), rows)]
    return torch.cat([model.forward([span], cache) for span in passes])
