"""The begin and end tokens that a tokenizer puts around a text when it is asked for special tokens."""

from __future__ import annotations

from tokenizers import Tokenizer, processors

Special = tuple[str, int]  # text and id


def surround(tokenizer: Tokenizer, begin: Special | None, end: Special | None) -> None:
    """Replaces whatever the tokenizer did before; None puts nothing there."""
    before = [] if begin is None else [begin[0]]
    after = [] if end is None else [end[0]]
    known = list(dict.fromkeys(token for token in (begin, end) if token is not None))
    tokenizer.post_processor = processors.TemplateProcessing(single=[*before, "$A", *after], special_tokens=known)
