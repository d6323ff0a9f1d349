"""The door of every runtime: a Request becomes token ids, a route and a decision, or a RequestError."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from trtspec.errors import RequestError, TrtspecError
from trtspec.front.bad_words import sequences
from trtspec.front.decision import Decision, Load, decide
from trtspec.front.request import Request
from trtspec.front.settings import FrontSettings, OffWhen, RouteSettings
from trtspec.front.tokens import Tokenizer
from trtspec.runtime.types import Capabilities, EngineRequest, Sampling

__all__ = ["Front", "FrontSettings", "OffWhen", "Prepared", "RouteSettings"]


@dataclass(frozen=True)
class Prepared:
    """A request ready for an engine, and what its reply must tell.

    ``id`` is the user's; ``engine_request.id`` is unique, so that two users of one id never cancel each other.
    """

    id: str
    engine_request: EngineRequest
    route: str
    route_requested: str | None  # None: the request named no route
    decision: Decision
    method: str
    acceptance: str

    @property
    def seed(self) -> int:
        return self.engine_request.sampling.seed

    @property
    def prompt_tokens(self) -> int:
        return len(self.engine_request.prompt_ids)


class Front:
    """Stateless; safe to share between threads."""

    def __init__(self, settings: FrontSettings, tokenizer: Tokenizer, capabilities: Capabilities) -> None:
        self._settings = settings
        self._tokenizer = tokenizer
        self._capabilities = capabilities

    def prepare(self, request: Request, in_flight: int = 1) -> Prepared:
        """``in_flight`` counts the requests in the engine, this one included (for ``off_when.batch_above``)."""
        prompt_ids = self._prompt_ids(request)
        room = self._room(prompt_ids, request.source)
        route = request.route if request.route in self._settings.routes else "default"
        decision = decide(request, str(route), self._settings, Load(len(prompt_ids), in_flight))
        stop, end_ids = self._ends(request)
        engine_request = EngineRequest(
            id=f"{request.id}.{secrets.token_hex(6)}",
            prompt_ids=prompt_ids,
            # Beyond max_seq_len nothing can be generated: such a request ends there, reason "length".
            max_tokens=min(request.max_tokens, room),
            sampling=_sampling(request),
            min_tokens=min(request.min_tokens, room),
            end_ids=end_ids,
            stop=stop,
            bad_words=sequences(request.bad_words, self._tokenizer),
            return_log_probs=request.return_log_probs,
            max_draft_len=decision.max_draft_len,
        )
        method, acceptance = self._settings.method, self._capabilities.acceptance
        return Prepared(request.id, engine_request, str(route), request.route, decision, method, acceptance)

    def _prompt_ids(self, request: Request) -> tuple[int, ...]:
        if request.input_ids is not None:
            self._check_range(request.input_ids, "input_ids")
            return request.input_ids
        if request.messages is not None:
            return tuple(self._tokenizer.encode(self._render(request), add_special=False))
        return tuple(self._tokenizer.encode(request.prompt or "", add_special=True))

    def _render(self, request: Request) -> str:
        if self._tokenizer.chat_template is None:
            raise RequestError(
                "messages",
                f"{self._settings.name} has no chat template: its tokenizer brings none",
                hint="send prompt or input_ids",
            )
        messages = [message.to_dict() for message in request.messages or ()]
        try:
            return self._tokenizer.render_chat(messages)
        except RequestError:
            raise
        except TrtspecError as error:
            raise RequestError("messages", error.message, hint=error.hint) from error

    def _check_range(self, ids: tuple[int, ...], field: str) -> None:
        size = min(self._tokenizer.vocab_size, self._capabilities.vocab_size)
        for position, token in enumerate(ids):
            if token >= size:
                raise RequestError(field, f"{field}[{position}] must be from 0 to {size - 1}, not {token}")

    def _room(self, prompt_ids: tuple[int, ...], field: str) -> int:
        """Tokens that can be generated behind the prompt: at least one, or a RequestError with both numbers."""
        max_seq_len = min(self._settings.max_seq_len, self._capabilities.max_seq_len)
        max_input_len = min(self._settings.max_input_len, self._capabilities.max_input_len)
        size = len(prompt_ids)
        if size == 0:
            raise RequestError(field, f"{field} is empty: it has no token to go on from")
        if size == max_seq_len:
            raise RequestError(
                field,
                f"{field} has {size} tokens and max_seq_len is {max_seq_len}: nothing is left to generate",
                hint=f"send at most {min(max_input_len, max_seq_len - 1)} tokens",
            )
        if size > max_seq_len:
            raise RequestError(field, f"{field} has {size} tokens, more than max_seq_len {max_seq_len}")
        if size > max_input_len:
            raise RequestError(field, f"{field} has {size} tokens, more than max_input_len {max_input_len}")
        return max_seq_len - size

    def _ends(self, request: Request) -> tuple[tuple[str, ...], frozenset[int]]:
        """Stop strings and end ids. A stop string that is a special token's own text never shows: it is an end id."""
        chosen = self._tokenizer.end_ids if request.end_id is None else request.end_id
        self._check_range(tuple(request.end_id or ()), "end_id")
        end_ids = set() if request.ignore_eos else set(chosen)
        stop = []
        for word in request.stop:
            token = self._special_id(word)
            if token is None:
                stop.append(word)
            else:
                end_ids.add(token)
        return tuple(stop), frozenset(end_ids)

    def _special_id(self, word: str) -> int | None:
        ids = self._tokenizer.encode(word, add_special=False)
        return ids[0] if len(ids) == 1 and self._tokenizer.is_special(ids[0]) else None


def _sampling(request: Request) -> Sampling:
    return Sampling(
        temperature=request.temperature,
        top_k=request.top_k,
        top_p=request.top_p,
        min_p=request.min_p,
        repetition_penalty=request.repetition_penalty,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        seed=request.seed,
    )
