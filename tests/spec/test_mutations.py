"""Whatever is done to a spec's text, reading it gives a Spec or SpecErrors that say where, and never anything else."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from trtspec.spec.load import parse_spec
from trtspec.spec.template import TEMPLATES, template

SCRAPS = (
    "", " ", "\t", "\n", ":", ": ", "- ", "#", "'", '"', "[", "]", "{", "}", "&a ", "*a", "<<: *a", "!!int ", "!x ",
    "null", "~", "off", "true", "-1", "0", "1e3", "1.5", ".nan", "999999999999999999999", "[]", "{}", "[[0], [0, 0]]",
    "|", ">", "---\n", "...\n", "%YAML 1.1\n", "? ", "\x00", "\ufffe", "\u2028", "\U0001f600", "2024-01-01", "0x10",
    "1:30", "{model: ./x}", "hf:a/b", "{key}", "__", "=",
)  # fmt: skip


def cut(text: str, rng: random.Random) -> str:
    start = rng.randrange(len(text))
    return text[:start] + text[start + rng.randint(1, 30) :]


def insert(text: str, rng: random.Random) -> str:
    place = rng.randrange(len(text))
    return text[:place] + rng.choice(SCRAPS) + text[place:]


def replace_value(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    number = rng.choice([number for number, line in enumerate(lines) if ": " in line])
    key, _, _ = lines[number].partition(": ")
    lines[number] = f"{key}: {rng.choice(SCRAPS)}\n"
    return "".join(lines)


def move_line(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    line = lines.pop(rng.randrange(len(lines)))
    lines.insert(rng.randrange(len(lines) + 1), rng.choice(["", " ", "  "]) + line)
    return "".join(lines)


def repeat_line(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    lines.insert(rng.randrange(len(lines)), rng.choice(lines))
    return "".join(lines)


def swap_letters(text: str, rng: random.Random) -> str:
    place = rng.randrange(len(text) - 1)
    return text[:place] + text[place + 1] + text[place] + text[place + 2 :]


WAYS = (cut, insert, replace_value, move_line, repeat_line, swap_letters)


@pytest.mark.parametrize("name", TEMPLATES)
def test_only_spec_errors_come_of_a_mutated_spec(name: str) -> None:
    rng = random.Random(name)
    plain = "".join(line.split("  #")[0].rstrip() + "\n" for line in template(name).splitlines() if line[:1] != "#")
    refused = 0
    for _ in range(100):
        text = plain
        for _ in range(rng.choice([1, 1, 1, 2, 4])):
            text = rng.choice(WAYS)(text, rng)
        loaded = parse_spec(text, "spec.yaml", Path("/specs"))
        assert (loaded.spec is None) == bool(loaded.errors)
        for error in loaded.errors:
            lines = text.count("\n") + text.count("\u2028") + 2
            assert error.line is not None and 1 <= error.line <= lines, text
            assert error.column is not None and error.column >= 1, text
            assert error.message.isprintable() and (error.hint or "").isprintable(), text
        refused += bool(loaded.errors)
    assert 30 < refused < 100  # the mutations neither always break a spec nor never
