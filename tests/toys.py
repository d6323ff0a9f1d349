"""Toy checkpoints and tokenizers, written as real files: safetensors in Hugging Face layout, tokenizer.json.

Everything is tiny, deterministic and written with numpy alone. Each ``*_checkpoint`` makes the folder, fills it with
config.json, generation_config.json and model.safetensors (or shards), writes a tokenizer beside them unless told not
to, and returns the folder.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from trtspec.checkpoints.layout import required_tensors
from trtspec.checkpoints.token_bytes import byte_alphabet
from trtspec.runtime.config import ModelConfig, RopeConfig

Array = npt.NDArray[Any]
Dtype = Literal["float32", "float16", "bfloat16"]
BEGIN, END = 0, 1  # of the letter and word tokenizers
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,!?-"
_FORMAT = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def random_checkpoint(
    path: Path,
    seed: int = 0,
    *,
    layers: int = 2,
    vocab: int = 64,
    hidden: int = 32,
    heads: int = 4,
    kv_heads: int = 2,
    intermediate: int | None = None,
    head_dim: int | None = None,
    family: str = "llama",
    rope: RopeConfig | None = None,
    max_positions: int = 256,
    tied: bool = False,
    sliding_window: int | None = None,
    bias: bool = False,
    dtype: Dtype = "float32",
    shards: int = 1,
    end_ids: Sequence[int] = (END,),
    tokenizer: bool = True,
    scale: float = 1.0,
) -> Path:
    """Normal weights of ``scale`` / sqrt(columns), norms near 1. The draft of cases.md is ``seed=1, layers=1``.

    ``bias``: attention_bias and mlp_bias of Llama. Its letter tokenizer has as many ids as fit in ``vocab``.
    """
    config = ModelConfig(
        family=family,
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=intermediate or 2 * hidden,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim or hidden // heads,
        norm_eps=1e-5,
        max_positions=max_positions,
        rope=rope or RopeConfig(),
        tied=tied,
        qkv_bias=family == "qwen2" or bias,
        o_bias=bias,
        mlp_bias=bias,
        qk_norm=family == "qwen3",
        sliding_window=sliding_window,
    )
    random = np.random.default_rng(seed)
    tensors = {
        name: _random_tensor(random, name, shape, scale)
        for name, shape in required_tensors(config, "huggingface").items()
    }
    return checkpoint(path, config, tensors, dtype=dtype, shards=shards, end_ids=end_ids, tokenizer=tokenizer)


def bigram_checkpoint(
    path: Path,
    table: Sequence[Sequence[float]] | Array,
    *,
    end_ids: Sequence[int] = (END,),
    max_positions: int = 256,
    dtype: Dtype = "float32",
    tokenizer: bool = True,
    tokens: int | None = None,
) -> Path:
    """One Llama layer that adds nothing: the logits after token t are ``table[t]`` (V x V, V even), in any position.

    ``tokens``: how many ids the letter tokenizer has, V by default; the rows beyond are padding (case A01).
    """
    logits = np.asarray(table, dtype=np.float64)
    vocab = len(logits)
    config = ModelConfig(
        family="llama",
        vocab_size=vocab,
        hidden_size=vocab,
        intermediate_size=8,
        num_layers=1,
        num_heads=2,
        num_kv_heads=1,
        head_dim=4,
        norm_eps=1e-6,
        max_positions=max_positions,
    )
    random = np.random.default_rng(0)
    tensors = {
        name: _random_tensor(random, name, shape, 1.0)
        for name, shape in required_tensors(config, "huggingface").items()
    }
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        tensors[f"model.layers.0.{name}.weight"][:] = 0
    tensors["model.embed_tokens.weight"] = np.eye(vocab, dtype=np.float32)
    tensors["model.norm.weight"][:] = math.sqrt(1 / vocab + config.norm_eps)  # undoes the norm of a one-hot row
    tensors["lm_head.weight"] = logits.T.astype(np.float32)
    checkpoint(path, config, tensors, dtype=dtype, end_ids=end_ids, tokenizer=False)
    if tokenizer:
        letter_tokenizer(path, letters=LETTERS[: (tokens or vocab) - 2])
    return path


def chain_table(vocab: int, chain: Mapping[int, int], *, high: float = 8.0) -> Array:
    """A bigram table in which token t is followed by ``chain[t]``; tokens that are not in it are followed by END."""
    table = np.zeros((vocab, vocab))
    for token in range(vocab):
        table[token, chain.get(token, END)] = high
    return table


def probability_table(vocab: int, probabilities: Mapping[int, float]) -> Array:
    """A bigram table whose every row is the distribution ``{token: probability}``; the other tokens get almost none."""
    row = np.full(vocab, -60.0)
    for token, probability in probabilities.items():
        row[token] = math.log(probability)
    return np.tile(row, (vocab, 1))


def checkpoint(
    path: Path,
    config: ModelConfig,
    tensors: Mapping[str, Array],
    *,
    dtype: Dtype = "float32",
    shards: int = 1,
    end_ids: Sequence[int] = (END,),
    tokenizer: bool = True,
) -> Path:
    """Any tensors (float32, Hugging Face names) with the config.json that says ``config``."""
    path.mkdir(parents=True, exist_ok=True)
    write_json(path / "config.json", hf_config(config, dtype, end_ids))
    write_json(path / "generation_config.json", {"bos_token_id": BEGIN, "eos_token_id": list(end_ids)})
    stored = {name: _store(values, dtype) for name, values in tensors.items()}
    if shards == 1:
        write_safetensors(path / "model.safetensors", stored)
    else:
        _write_shards(path, stored, shards)
    if tokenizer:
        letter_tokenizer(path, letters=LETTERS[: config.vocab_size - 2])
    return path


def hf_config(config: ModelConfig, dtype: str = "float32", end_ids: Sequence[int] = (END,)) -> dict[str, Any]:
    """As transformers 5 writes it."""
    family = config.family
    content: dict[str, Any] = {
        "model_type": family,
        "architectures": [f"{family.capitalize()}ForCausalLM"],
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.norm_eps,
        "max_position_embeddings": config.max_positions,
        "rope_parameters": _rope_parameters(config.rope),
        "tie_word_embeddings": config.tied,
        "hidden_act": "silu",
        "dtype": dtype,
        "bos_token_id": BEGIN,
        "eos_token_id": list(end_ids),
    }
    if family in ("llama", "qwen3"):
        content["attention_bias"] = config.qkv_bias
    if family == "llama":
        content["mlp_bias"] = config.mlp_bias
    if family == "mistral":
        content["sliding_window"] = config.sliding_window
    return content


def byte_tokenizer(path: Path, *, add_begin: bool = True) -> Path:
    """Id b is the byte b; 256 is the begin token ``<s>``, 257 the end token ``</s>``. Vocabulary 258."""
    return _write_tokenizer(
        path,
        model=_byte_bpe(byte_alphabet(), 256, 257),
        begin=256,
        end=257,
        pre_tokenizer=_BYTE_LEVEL,
        decoder=_BYTE_LEVEL,
        add_begin=add_begin,
    )


def letter_tokenizer(path: Path, letters: str = LETTERS, *, add_begin: bool = False) -> Path:
    """Id 0 is ``<s>``, 1 is ``</s>``, from 2 on one id per letter (``a`` is 2). Letters are single ASCII characters."""
    by_byte = {byte: text for text, byte in byte_alphabet().items()}
    vocabulary = {by_byte[ord(letter)]: 2 + place for place, letter in enumerate(letters)}
    return _write_tokenizer(
        path,
        model=_byte_bpe(vocabulary, BEGIN, END),
        begin=BEGIN,
        end=END,
        pre_tokenizer=_BYTE_LEVEL,
        decoder=_BYTE_LEVEL,
        add_begin=add_begin,
    )


def word_tokenizer(path: Path, words: Sequence[str], *, add_begin: bool = False) -> Path:
    """Id 0 is ``<s>``, 1 is ``</s>``, from 2 on one id per word piece, ``▁`` for a leading space; last ``<unk>``.

    A piece with a leading space loses it when it is decoded alone, as at the start of a text (case A21).
    """
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    scored = ([word, -float(place)] for place, word in enumerate(words))
    pieces = [["<s>", -99.0], ["</s>", -99.0], *scored, ["<unk>", -99.0]]
    return _write_tokenizer(
        path,
        model={"type": "Unigram", "unk_id": len(pieces) - 1, "vocab": pieces, "byte_fallback": False},
        begin=BEGIN,
        end=END,
        pre_tokenizer=metaspace,
        decoder=metaspace,
        add_begin=add_begin,
    )


CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ':' + message['content'] + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def write_safetensors(file: Path, tensors: Mapping[str, Array]) -> None:
    """uint16 arrays are bfloat16 bits."""
    entries, end = {}, 0
    for name, values in tensors.items():
        dtype = {"float32": "F32", "float16": "F16", "uint16": "BF16", "uint8": "F8_E4M3"}[values.dtype.name]
        entries[name] = {
            "dtype": dtype,
            "shape": list(values.shape),
            "data_offsets": [end, end + values.nbytes],
        }
        end += values.nbytes
    header = json.dumps(entries).encode()
    file.write_bytes(
        len(header).to_bytes(8, "little") + header + b"".join(values.tobytes() for values in tensors.values())
    )


def write_json(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False), encoding="utf-8")


def _write_shards(path: Path, tensors: Mapping[str, Array], shards: int) -> None:
    names = list(tensors)
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        mine = names[shard::shards]
        write_safetensors(path / file, {name: tensors[name] for name in mine})
        weight_map.update(dict.fromkeys(mine, file))
    total = sum(values.nbytes for values in tensors.values())
    write_json(path / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": weight_map})


def _random_tensor(random: np.random.Generator, name: str, shape: tuple[int, ...], scale: float) -> Array:
    values = random.standard_normal(shape)
    if name.endswith("norm.weight"):
        return (1 + 0.1 * values).astype(np.float32)
    return (values * scale / math.sqrt(shape[-1])).astype(np.float32)


def _store(values: Array, dtype: Dtype) -> Array:
    if dtype != "bfloat16":
        return values.astype(dtype)
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _rope_parameters(rope: RopeConfig) -> dict[str, Any]:
    parameters: dict[str, Any] = {"rope_type": rope.type, "rope_theta": rope.theta}
    if rope.type != "default":
        parameters["factor"] = rope.factor
    if rope.type in ("llama3", "yarn"):
        parameters["original_max_position_embeddings"] = rope.original_max_positions
    if rope.type == "llama3":
        parameters |= {"low_freq_factor": rope.low_freq_factor, "high_freq_factor": rope.high_freq_factor}
    if rope.type == "yarn":
        parameters |= {"beta_fast": rope.beta_fast, "beta_slow": rope.beta_slow}
        if rope.attention_factor is not None:
            parameters["attention_factor"] = rope.attention_factor
    return parameters


def _write_tokenizer(
    path: Path,
    *,
    model: Mapping[str, Any],
    begin: int,
    end: int,
    pre_tokenizer: Mapping[str, Any],
    decoder: Mapping[str, Any],
    add_begin: bool,
) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    special = [{"id": begin, "content": "<s>"}, {"id": end, "content": "</s>"}]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    write_json(
        path / "tokenizer.json",
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [token | flags for token in special],
            "normalizer": None,
            "pre_tokenizer": pre_tokenizer,
            "post_processor": _begin_template(begin) if add_begin else None,
            "decoder": decoder,
            "model": model,
        },
    )
    config = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": CHAT_TEMPLATE}
    write_json(path / "tokenizer_config.json", config)
    if not (path / "generation_config.json").exists():
        write_json(path / "generation_config.json", {"bos_token_id": begin, "eos_token_id": end})
    return path


def _byte_bpe(vocabulary: Mapping[str, int], begin: int, end: int) -> dict[str, Any]:
    return {"type": "BPE", "vocab": {**vocabulary, "<s>": begin, "</s>": end}, "merges": []}


def _begin_template(begin: int) -> dict[str, Any]:
    text = {"Sequence": {"id": "A", "type_id": 0}}
    token = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [token, text],
        "pair": [token, text, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [begin], "tokens": ["<s>"]}},
    }
