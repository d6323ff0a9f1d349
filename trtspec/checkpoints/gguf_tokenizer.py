"""GGUF vocabulary metadata to a `tokenizers` tokenizer, as the tokenizer.json of the original model would describe it.

Byte-level BPE (``gpt2``) comes with its merges. SentencePiece (``llama``) comes with scores only: a pair may merge when
the joined piece exists, the higher score first, which is what SentencePiece's own BPE does.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from trtspec.checkpoints.gguf import GgufFile
from trtspec.checkpoints.gguf_vocabulary import (
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    numbers,
    token_id,
    token_types,
    tokens,
)
from trtspec.checkpoints.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from trtspec.checkpoints.surround import surround
from trtspec.errors import CheckpointError

MODELS = ("gpt2", "llama")


def tokenizer_from_gguf(file: GgufFile) -> Tokenizer:
    model = file.metadata.get("tokenizer.ggml.model")
    if model == "gpt2":
        tokenizer, begins = _byte_level(file)
    elif model == "llama":
        tokenizer, begins = _sentence_piece(file), True
    else:
        raise _refused(file, f"tokenizer model {model!r} is not read", f"these are: {', '.join(MODELS)}")
    _add_special(tokenizer, file)
    _add_template(tokenizer, file, begins)
    return tokenizer


def _byte_level(file: GgufFile) -> tuple[Tokenizer, bool]:
    name = file.metadata.get("tokenizer.ggml.pre", "default")
    if name not in PRE_TOKENIZERS:
        raise _refused(file, f"pre-tokenizer {name!r} is not known", f"these are: {', '.join(PRE_TOKENIZERS)}")
    way = PRE_TOKENIZERS[name]
    tokenizer = Tokenizer(models.BPE(_vocabulary(file), _merges(file), ignore_merges=way.whole_words))
    if way.nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _splits(way)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, way.begins


def _splits(way: PreTokenizer) -> pre_tokenizers.PreTokenizer:
    steps = [pre_tokenizers.Split(Regex(split), behavior="isolated") for split in way.splits]
    return pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _vocabulary(file: GgufFile) -> dict[str, int]:
    """Without the rows that only pad the embedding."""
    types = token_types(file)
    return {text: index for index, text in enumerate(tokens(file)) if types[index] != UNUSED}


def _merges(file: GgufFile) -> list[tuple[str, str]]:
    merges = file.metadata.get("tokenizer.ggml.merges")
    if not isinstance(merges, list) or not all(isinstance(merge, str) for merge in merges[:1]):
        raise _refused(file, "tokenizer.ggml.merges is missing", "use a GGUF file that carries its merges")
    vocabulary = _vocabulary(file)
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    for left, right in pairs:
        if left not in vocabulary or right not in vocabulary or left + right not in vocabulary:
            raise _refused(file, f"merge {left!r} {right!r} has no place in the vocabulary", "fetch the file again")
    return pairs


def _sentence_piece(file: GgufFile) -> Tokenizer:
    vocabulary = _vocabulary(file)
    unknown = token_id(file, "unknown")
    tokenizer = Tokenizer(
        models.BPE(
            vocabulary,
            list(_scored_merges(file, vocabulary)),
            unk_token=None if unknown is None else tokens(file)[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    spaces = [normalizers.Replace(" ", "▁")]
    cleaning = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if file.metadata.get("tokenizer.ggml.add_space_prefix", True):
        spaces.insert(0, normalizers.Prepend("▁"))
        cleaning.append(decoders.Strip(" ", 1, 0))
    tokenizer.normalizer = normalizers.Sequence(spaces)
    tokenizer.decoder = decoders.Sequence(cleaning)
    return tokenizer


def _scored_merges(file: GgufFile, vocabulary: dict[str, int]) -> Iterator[tuple[str, str]]:
    scores = numbers(file, "tokenizer.ggml.scores", [])
    types = token_types(file)
    ranked = sorted(
        (piece for piece, index in vocabulary.items() if types[index] in (NORMAL, USER_DEFINED)),
        key=lambda piece: (-scores[vocabulary[piece]], vocabulary[piece]),
    )
    for piece in ranked:
        splits = ((piece[:cut], piece[cut:]) for cut in range(1, len(piece)))
        known = [(left, right) for left, right in splits if left in vocabulary and right in vocabulary]
        yield from sorted(known, key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))


def _add_special(tokenizer: Tokenizer, file: GgufFile) -> None:
    kinds = list(zip(tokens(file), token_types(file), strict=True))
    control = [text for text, kind in kinds if kind in (CONTROL, UNKNOWN)]
    defined = [text for text, kind in kinds if kind == USER_DEFINED]
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in control])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in defined])


def _add_template(tokenizer: Tokenizer, file: GgufFile, begins: bool) -> None:
    """The begin and end tokens that encoding with ``add_special`` puts around a text."""
    wanted_begin = file.metadata.get("tokenizer.ggml.add_bos_token", begins)
    wanted_end = file.metadata.get("tokenizer.ggml.add_eos_token", False)
    begin = token_id(file, "bos") if wanted_begin else None
    end = token_id(file, "eos") if wanted_end else None
    begin_token, end_token = (None if index is None else (tokens(file)[index], index) for index in (begin, end))
    if begin_token or end_token:
        surround(tokenizer, begin_token, end_token)


def _refused(file: GgufFile, message: str, hint: str) -> CheckpointError:
    return CheckpointError(f"{file.path.name}: {message}", where=str(file.path), hint=hint)
