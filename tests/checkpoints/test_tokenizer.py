from __future__ import annotations

import json
from pathlib import Path

import pytest
import transformers

from tests import toys
from trtspec.checkpoints.tokenizer import load_tokenizer
from trtspec.errors import CheckpointError, RequestError

USER = [{"role": "user", "content": "hi"}]


def edit(file: Path, **changes: object) -> None:
    old = json.loads(file.read_text()) if file.exists() else {}
    toys.write_json(file, {**old, **changes})


def test_special_tokens_in_a_text_are_read_as_such(tmp_path: Path) -> None:
    """As Hugging Face does, in prompts and in rendered chats: one id, not the letters."""
    tokenizer = load_tokenizer(toys.byte_tokenizer(tmp_path))
    assert tokenizer.encode("a</s>", False) == [97, 257]
    rendered = tokenizer.render_chat([{"role": "user", "content": "hi</s>"}])
    assert tokenizer.encode(rendered, False).count(257) == 2


def test_equal_to_transformers(tmp_path: Path) -> None:
    toys.byte_tokenizer(tmp_path)
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "tokenizer.json"), bos_token="<s>", eos_token="</s>"
    )
    ours = load_tokenizer(tmp_path)
    for text in ("", "hello", "a</s>b", "日本語 🤗\n"):
        for special in (True, False):
            assert ours.encode(text, special) == theirs.encode(text, add_special_tokens=special)
    for skip in (True, False):
        ids = [256, 104, 105, 257, 0xF0, 0x9F]
        assert ours.decode(ids, skip) == theirs.decode(ids, skip_special_tokens=skip)
    chat = theirs.apply_chat_template(
        USER, chat_template=toys.CHAT_TEMPLATE, tokenize=False, add_generation_prompt=True
    )
    assert ours.render_chat(USER) == chat


def test_ids_without_a_token(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(toys.letter_tokenizer(tmp_path, "ab"))
    assert tokenizer.decode([2, 99, -1, 3]) == "ab"
    assert (tokenizer.token(99), tokenizer.token(-1), tokenizer.token_bytes(99)) == (None, None, None)
    assert (tokenizer.token(2), tokenizer.token_bytes(2)) == ("a", b"a")
    assert not tokenizer.is_special(99)


def test_special_tokens_are_skipped_or_shown(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(toys.letter_tokenizer(tmp_path, "ab"))
    assert tokenizer.decode([0, 2, 1]) == "a"
    assert tokenizer.decode([0, 2, 1], skip_special=False) == "<s>a</s>"
    assert [tokenizer.is_special(index) for index in range(4)] == [True, True, False, False]


@pytest.mark.parametrize("name", ["bos_token", "eos_token"])
def test_named_tokens_may_be_objects(tmp_path: Path, name: str) -> None:
    toys.letter_tokenizer(tmp_path, "ab")
    edit(
        tmp_path / "tokenizer_config.json",
        **{name: {"content": "<s>", "lstrip": False}},
        chat_template=f"{{{{ {name} }}}}",
    )
    assert load_tokenizer(tmp_path).render_chat(USER) == "<s>"


def test_ends_of_generation_config_then_config_then_tokenizer(tmp_path: Path) -> None:
    toys.letter_tokenizer(tmp_path, "abc")
    edit(tmp_path / "generation_config.json", eos_token_id=[1, 4])
    edit(tmp_path / "config.json", eos_token_id=3)
    assert load_tokenizer(tmp_path).end_ids == (1, 4)
    (tmp_path / "generation_config.json").unlink()
    assert load_tokenizer(tmp_path).end_ids == (3,)
    (tmp_path / "config.json").unlink()
    assert load_tokenizer(tmp_path).end_ids == (toys.END,)


def test_where_chat_templates_lie(tmp_path: Path) -> None:
    toys.letter_tokenizer(tmp_path, "ab")
    config = tmp_path / "tokenizer_config.json"
    edit(config, chat_template="one")
    assert load_tokenizer(tmp_path).render_chat(USER) == "one"
    edit(config, chat_template=[{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "two"}])
    assert load_tokenizer(tmp_path).render_chat(USER) == "two"
    (tmp_path / "chat_template.jinja").write_text("three")
    assert load_tokenizer(tmp_path).render_chat(USER) == "three"


def test_no_chat_template_is_the_requests_fault(tmp_path: Path) -> None:
    toys.letter_tokenizer(tmp_path, "ab")
    edit(tmp_path / "tokenizer_config.json", chat_template=None)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.chat_template is None
    with pytest.raises(RequestError, match="no chat template") as caught:
        tokenizer.render_chat(USER)
    assert caught.value.field == "messages"


def test_padding_and_truncation_of_the_file_do_not_apply(tmp_path: Path) -> None:
    toys.letter_tokenizer(tmp_path, "ab")
    truncation = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    edit(tmp_path / "tokenizer.json", truncation=truncation)
    assert load_tokenizer(tmp_path).encode("abab", False) == [2, 3, 2, 3]


def test_saved_and_loaded_it_is_the_same(tmp_path: Path) -> None:
    before = load_tokenizer(toys.byte_tokenizer(tmp_path / "a"))
    before.save(tmp_path / "b")
    after = load_tokenizer(tmp_path / "b")
    text = "<s>hello</s> 🤗"
    assert after.encode(text, True) == before.encode(text, True)
    assert (after.end_ids, after.bos_id, after.vocab_size) == (before.end_ids, before.bos_id, before.vocab_size)
    assert after.render_chat(USER) == before.render_chat(USER)


@pytest.mark.parametrize(
    ("content", "words"), [(None, "is missing"), ("{", "cannot be read"), ("{}", "cannot be read")]
)
def test_files_that_are_no_tokenizers(tmp_path: Path, content: str | None, words: str) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(CheckpointError, match=rf"tokenizer\.json {words}"):
        load_tokenizer(tmp_path)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no tokenizer at"):
        load_tokenizer(tmp_path / "nowhere")


def test_a_begin_token_that_the_configuration_asks_for(tmp_path: Path) -> None:
    """Llama-type tokenizers say it in tokenizer_config.json, whatever tokenizer.json was saved with."""
    toys.letter_tokenizer(tmp_path, "ab", add_begin=False)
    edit(tmp_path / "tokenizer_config.json", add_bos_token=True)
    assert load_tokenizer(tmp_path).encode("a", True) == [toys.BEGIN, 2]
    assert load_tokenizer(tmp_path).encode("a", False) == [2]
