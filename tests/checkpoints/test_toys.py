"""The toys are what they say: real transformers reads them and computes what they promise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from tests import toys
from trtspec.checkpoints.facts import read_facts
from trtspec.checkpoints.tokenizer import load_tokenizer


def test_bigram_logits_are_the_table(tmp_path: Path) -> None:
    table = np.random.default_rng(3).normal(size=(16, 16))
    toys.bigram_checkpoint(tmp_path, table)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = torch.tensor([[2, 7, 1, 15, 7]])
    with torch.no_grad():
        logits = model(ids).logits[0].numpy()
    np.testing.assert_allclose(logits, table[ids[0].numpy()], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("shards", [1, 2])
def test_random_checkpoint_loads_in_transformers_without_a_key_left_over(
    tmp_path: Path, family: str, shards: int
) -> None:
    toys.random_checkpoint(tmp_path, family=family, shards=shards)
    _, info = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    assert read_facts(tmp_path).config.family == family


def test_chain_and_probability_tables() -> None:
    assert toys.chain_table(6, {2: 3, 3: 4})[[2, 3, 4]].argmax(axis=1).tolist() == [3, 4, toys.END]
    row = toys.probability_table(4, {2: 0.25, 3: 0.75})[0]
    weights = np.exp(row) / np.exp(row).sum()
    np.testing.assert_allclose(weights, [0, 0, 0.25, 0.75], atol=1e-12)


def test_byte_tokenizer_has_one_id_per_byte(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(toys.byte_tokenizer(tmp_path))
    assert tokenizer.encode("a🤗", True) == [256, *"a🤗".encode()]
    assert tokenizer.encode("a🤗", False) == list("a🤗".encode())
    assert (tokenizer.vocab_size, tokenizer.bos_id, tokenizer.end_ids) == (258, 256, (257,))
    assert [tokenizer.token_bytes(byte) for byte in range(256)] == [bytes([byte]) for byte in range(256)]


def test_letter_tokenizer_counts_from_two(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(toys.letter_tokenizer(tmp_path, "abS"))
    assert tokenizer.encode("abS", True) == [2, 3, 4]
    assert tokenizer.decode([2, 3, 4, 1]) == "abS"


def test_word_tokenizer_loses_the_space_of_a_piece_decoded_alone(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(toys.word_tokenizer(tmp_path, ["▁the", "▁cat", "s", "▁"]))
    assert tokenizer.encode("the cats", True) == [2, 3, 4]
    assert tokenizer.decode([2, 3, 4]) == "the cats"
    assert tokenizer.decode([3]) == "cat"
    assert tokenizer.token_bytes(3) == b" cat"
