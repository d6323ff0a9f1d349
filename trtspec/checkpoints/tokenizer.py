"""Text to token ids and back, and chat messages to text, over the `tokenizers` library.

Special tokens written in a text (``<|im_start|>``) are read as those tokens, in prompts and in message contents alike,
as Hugging Face's chat templates do: whoever passes on texts of people that must not forge turns has to filter them.
Decoding never "cleans up" spaces around punctuation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from trtspec.checkpoints import gguf_vocabulary
from trtspec.checkpoints.chat import render
from trtspec.checkpoints.facts import bos_id, end_ids
from trtspec.checkpoints.gguf import GgufFile, read_gguf
from trtspec.checkpoints.gguf_tokenizer import tokenizer_from_gguf
from trtspec.checkpoints.json_file import read_object_if_there
from trtspec.checkpoints.surround import surround
from trtspec.checkpoints.token_bytes import BytesOfTokens
from trtspec.errors import CheckpointError, RequestError

TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
GENERATION_CONFIG = "generation_config.json"
CHAT_TEMPLATE = "chat_template.jinja"


def load_tokenizer(path: Path) -> Tokenizer:
    """Of a folder with tokenizer.json (a model, a packed checkpoint) or of a .gguf file."""
    if path.suffix == ".gguf" and path.is_file():
        return _from_gguf(read_gguf(path))
    if not path.is_dir():
        raise CheckpointError(f"no tokenizer at {path}", where=str(path), hint="name a folder or a .gguf file")
    return _from_folder(path)


class Tokenizer:
    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        *,
        bos_id: int | None = None,
        end_ids: tuple[int, ...] = (),
        chat_template: str | None = None,
        named: Mapping[str, str] | None = None,
    ) -> None:
        """``named``: the texts of ``bos_token``, ``eos_token`` ... as chat templates use them."""
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self.bos_id, self.end_ids, self.chat_template = bos_id, end_ids, chat_template
        self._tokenizer, self._named = tokenizer, dict(named or {})
        added = tokenizer.get_added_tokens_decoder()
        self._special = frozenset(index for index, token in added.items() if token.special)
        self._added: dict[int, str] = {index: token.content for index, token in added.items()}
        self._vocab_size = 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        self._bytes = BytesOfTokens(_decoder(tokenizer))

    @property
    def vocab_size(self) -> int:
        """One more than the largest id that stands for a token."""
        return self._vocab_size

    def encode(self, text: str, add_special: bool) -> list[int]:
        """``add_special``: with the begin (and end) tokens that the model's tokenizer puts around a text."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special).ids
        return ids

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Ids without a token are left out; bytes that are no UTF-8 become U+FFFD."""
        known = [index for index in ids if 0 <= index < self._vocab_size]
        text: str = self._tokenizer.decode(known, skip_special_tokens=skip_special)
        return text

    def token(self, token_id: int) -> str | None:
        """As it is written in the vocabulary (``Ġthe``, ``▁the``); None for an id without a token."""
        text: str | None = self._tokenizer.id_to_token(token_id) if 0 <= token_id < self._vocab_size else None
        return text

    def token_bytes(self, token_id: int) -> bytes | None:
        """What the token adds to a text; None for an id without a token, or in a vocabulary without a byte meaning."""
        if token_id in self._added:
            return self._added[token_id].encode()
        text = self.token(token_id)
        return None if text is None else self._bytes.of(text)

    def is_special(self, token_id: int) -> bool:
        return token_id in self._special

    def render_chat(self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True) -> str:
        """The text the chat template makes; it holds the begin token, so encode it with ``add_special=False``."""
        if self.chat_template is None:
            raise RequestError("messages", "this model has no chat template", hint="send prompt instead")
        return render(
            self.chat_template,
            messages,
            add_generation_prompt=add_generation_prompt,
            special_tokens=self._named,
        )

    def save(self, folder: Path) -> None:
        """The files from which ``load_tokenizer`` makes the same tokenizer."""
        folder.mkdir(parents=True, exist_ok=True)
        generation = {"bos_token_id": self.bos_id, "eos_token_id": list(self.end_ids)}
        (folder / TOKENIZER).write_text(self._tokenizer.to_str(), encoding="utf-8")
        _write_json(folder / TOKENIZER_CONFIG, {**self._named, "chat_template": self.chat_template})
        _write_json(folder / GENERATION_CONFIG, generation)


def _decoder(tokenizer: tokenizers.Tokenizer) -> dict[str, Any] | None:
    """The ``decoder`` of its tokenizer.json."""
    state: dict[str, Any] | None = None if tokenizer.decoder is None else json.loads(tokenizer.decoder.__getstate__())
    return state


def _from_gguf(file: GgufFile) -> Tokenizer:
    texts = gguf_vocabulary.tokens(file)
    roles = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
    ids = {name: gguf_vocabulary.token_id(file, role) for name, role in roles.items()}
    template = file.metadata.get("tokenizer.chat_template")
    return Tokenizer(
        tokenizer_from_gguf(file),
        bos_id=ids["bos_token"],
        end_ids=gguf_vocabulary.end_ids(file),
        chat_template=template if isinstance(template, str) else None,
        named={name: texts[index] for name, index in ids.items() if index is not None},
    )


def _from_folder(folder: Path) -> Tokenizer:
    tokenizer = _read_tokenizer(folder / TOKENIZER)
    config = read_object_if_there(folder / TOKENIZER_CONFIG)
    model = read_object_if_there(folder / "config.json")
    generation = read_object_if_there(folder / GENERATION_CONFIG)
    named = _named_tokens(config)
    ids = {name: tokenizer.token_to_id(text) for name, text in named.items()}
    begin, end = ids.get("bos_token"), ids.get("eos_token")
    if "add_bos_token" in config or "add_eos_token" in config:  # these overrule tokenizer.json, as in transformers 5
        with_begin, with_end = config.get("add_bos_token"), config.get("add_eos_token")
        surround(
            tokenizer,
            (named["bos_token"], begin) if with_begin and begin is not None else None,
            (named["eos_token"], end) if with_end and end is not None else None,
        )
    return Tokenizer(
        tokenizer,
        bos_id=begin if begin is not None else bos_id(generation, model),
        end_ids=end_ids(generation, model) or (() if end is None else (end,)),
        chat_template=_chat_template(folder, config),
        named=named,
    )


def _read_tokenizer(file: Path) -> tokenizers.Tokenizer:
    if not file.is_file():
        raise CheckpointError(
            f"{file.name} is missing in {file.parent}",
            where=str(file),
            hint="save the fast tokenizer with the model, or name its folder under `tokenizer`",
        )
    try:
        return tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception for every fault of the file
        raise CheckpointError(f"{file.name} cannot be read: {error}", where=str(file), hint="fetch it again") from error


def _named_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """``bos_token`` and its like; older files write an object with the text under ``content``."""
    named = {}
    for name in ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token"):
        value = config.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            named[name] = text
    return named


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """A file of its own wins; a list holds several by name, of which ``default`` is meant."""
    file = folder / CHAT_TEMPLATE
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _write_json(file: Path, content: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
