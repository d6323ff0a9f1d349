"""Token ids to text as they come: characters are never split, spaces never lost, stop strings never shown.

The text of the stream is the tokenizer's decode of all its ids, whatever the chunks. Tokens are decoded behind a short
context of the tokens before them, because a token's own text can depend on whether it is the first. Bytes that are no
valid UTF-8 become one U+FFFD per maximal invalid part (Unicode 15, section 3.9), also where a tokenizer's own decode
would spoil the valid characters around them (SentencePiece byte fallback).
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from trtspec.front.tokens import Tokenizer
from trtspec.runtime.types import StopChecker, StopCheckerFactory

CONTEXT_TOKENS = 4  # kept when the context is trimmed
LONGEST_CONTEXT = 16
REPLACEMENT = "\ufffd"


class Detokenizer:
    """Ids to whole characters. Cost per token does not grow with the text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._context: list[int] = []
        self._context_text = ""
        self._pending: list[int] = []  # decoded with the next token that ends a character
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, ids: Sequence[int]) -> str:
        ids = [token for token in ids if not self._tokenizer.is_special(token)]
        if not ids:
            return ""
        return self._push_whole(ids) or "".join(map(self._push_one, ids))

    def finish(self) -> str:
        """The text of an unfinished character, as U+FFFD."""
        chunk = self._take_bytes() if self._pending else ""
        self._utf8.reset()
        return chunk

    def _push_whole(self, ids: list[int]) -> str:
        """The text of all ids in one decode, or "" where they must be taken one by one. Changes nothing then."""
        before = self._utf8.getstate()
        for token in ids:
            self._ends_character(token)
        waiting, _ = self._utf8.getstate()
        text = None if waiting else self._decode_behind_context(self._pending + ids)
        if not text:
            self._utf8.setstate(before)
            return ""
        self._pending += ids
        return self._take(text)

    def _push_one(self, token: int) -> str:
        self._pending.append(token)
        if not self._ends_character(token):
            return ""
        text = self._decode_behind_context(self._pending)
        return self._take_bytes() if text is None else self._take(text)

    def _ends_character(self, token: int) -> bool:
        data = self._tokenizer.token_bytes(token)
        if data is None:
            self._utf8.reset()
            return True
        self._utf8.decode(data)
        return not self._utf8.getstate()[0]

    def _decode_behind_context(self, ids: list[int]) -> str | None:
        """Text of ids after the context; None where the tokenizer's decode cannot be trusted with these bytes."""
        whole = self._tokenizer.decode(self._context + ids)
        if not whole.startswith(self._context_text):
            return None
        text = whole[len(self._context_text) :]
        if REPLACEMENT in text and any(self._tokenizer.token_bytes(token) is not None for token in ids):
            return None
        return text

    def _take(self, text: str) -> str:
        self._context += self._pending
        self._context_text += text
        self._pending = []
        if len(self._context) > LONGEST_CONTEXT:
            self._trim_context()
        return text

    def _trim_context(self) -> None:
        """Drops the oldest tokens; what is left starts at a character and has a text, so no token is taken as first."""
        for size in range(CONTEXT_TOKENS, len(self._context)):
            context = self._context[-size:]
            text = self._tokenizer.decode(context)
            if text and REPLACEMENT not in text:
                self._context, self._context_text = context, text
                return

    def _take_bytes(self) -> str:
        """The text of the pending tokens by their bytes alone, with U+FFFD for what is no UTF-8."""
        text = self._bytes_to_text(self._pending)
        self._pending = []
        # The tokens behind such bytes must not be decoded together with them: go on behind an ordinary word.
        self._context = self._tokenizer.encode("a", add_special=False)
        self._context_text = self._tokenizer.decode(self._context)
        return text

    def _bytes_to_text(self, ids: list[int]) -> str:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        parts = []
        for token in ids:
            data = self._tokenizer.token_bytes(token)
            if data is not None:
                parts.append(decoder.decode(data))
            else:
                parts += [decoder.decode(b"", True), self._tokenizer.decode([token])]
                decoder.reset()
        return "".join(parts) + decoder.decode(b"", True)


class StopSearch:
    """Cuts text before the first stop string to be completed, and holds back what may become one."""

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = tuple(stop)
        self._held = ""
        self.found: str | None = None

    def push(self, text: str) -> str:
        """The text that is now certain. Of two stops completed by the same character the longer wins."""
        if self.found is not None or not text:
            return ""
        text = self._held + text
        matches = [(text.find(stop) + len(stop), -len(stop), stop) for stop in self._stop if stop in text]
        if matches:
            end, _, self.found = min(matches)
            self._held = ""
            return text[: end - len(self.found)]
        keep = self._possible_start(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        held, self._held = self._held, ""
        return held

    def _possible_start(self, text: str) -> int:
        """Length of the longest end of text that begins a stop string."""
        longest = max(map(len, self._stop), default=1) - 1
        for size in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-size:]) for stop in self._stop):
                return size
        return 0


class TextStream:
    """One request's output text. ``stopped`` is the stop string that ended it; nothing comes after."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._search = StopSearch(stop)

    @property
    def stopped(self) -> str | None:
        return self._search.found

    def push(self, ids: Sequence[int]) -> str:
        return self._search.push(self._detokenizer.push(ids))

    def finish(self) -> str:
        """The rest of the text: an unfinished character and what was held back."""
        return self._search.push(self._detokenizer.finish()) + self._search.finish()


class StopWatcher:
    """The engine's stop checker: the very text stream the front shows, asked token by token."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str]) -> None:
        self._stream = TextStream(tokenizer, stop)

    def push(self, token_id: int) -> bool:
        self._stream.push([token_id])
        return self._stream.stopped is not None


class NoStop:
    """For requests without stop strings: no token is decoded."""

    def push(self, token_id: int) -> bool:
        return False


def stop_checker_factory(tokenizer: Tokenizer) -> StopCheckerFactory:
    def make(stop: tuple[str, ...]) -> StopChecker:
        return StopWatcher(tokenizer, stop) if stop else NoStop()

    return make
