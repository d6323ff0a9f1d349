from __future__ import annotations

import pytest

from trtspec.errors import UserError
from trtspec.front.jsonl import error_document, read_lines


def test_lines_are_read_in_order_with_their_default_ids() -> None:
    lines = read_lines(b'{"prompt": "a"}\n{"prompt": "b", "id": "mine"}\r\n\n{"prompt": "c"}\n', "f")
    assert [(line.id, line.number, line.request is not None) for line in lines] == [
        ("0", 1, True),
        ("mine", 2, True),
        ("3", 4, True),
    ]


@pytest.mark.parametrize("data", [b"", b"\n", b"  \n\n"])
def test_an_empty_file_has_no_lines(data: bytes) -> None:
    assert read_lines(data, "f") == []


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert read_lines(b'\xef\xbb\xbf{"prompt": "a"}', "f")[0].request is not None


def test_a_last_line_needs_no_end() -> None:
    assert read_lines('{"prompt": "é\u2028x"}'.encode(), "f")[0].request.prompt == "é\u2028x"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (b"{prompt: 1}", "Expecting property name.* at column 2"),
        (b"hello", "Expecting value at column 1"),
        (b'{"prompt": "a"} x', "Extra data at column 17"),
        (b'{"prompt": "\xff"}', "byte 13 is not UTF-8"),
        (b'{"prompt": "a", "prompt": "b"}', 'the key "prompt" is there twice'),
        (b'{"seed": ' + b"9" * 5000 + b"}", "Exceeds the limit"),
        (b"[" * 100_000, "recursion"),
    ],
)
def test_a_line_that_is_no_json_stops_everything_before_work(second: bytes, reason: str) -> None:
    with pytest.raises(UserError, match=f"line 2 of f.jsonl is not a JSON object: .*{reason}") as caught:
        read_lines(b'{"prompt": "a"}\n' + second + b"\n", "f.jsonl")
    assert (caught.value.line, caught.value.exit_code) == (2, 1)


def test_a_bad_value_is_its_own_lines_error() -> None:
    lines = read_lines(b'{"prompt": "a"}\n{"prompt": "b", "top_p": 1.5, "id": "x"}\n5\n{"prompt": 1, "id": 7}', "f")
    documents = [error_document(line.id, line.error) for line in lines if line.error is not None]
    assert [line.error is None for line in lines] == [True, False, False, False]
    assert documents[0] == {
        "id": "x",
        "error": {"field": "top_p", "message": "top_p must be above 0 and at most 1, not 1.5"},
    }
    assert [document["id"] for document in documents[1:]] == ["2", "3"]
    assert documents[1]["error"]["message"] == "a request must be a JSON object, not 5"


def test_an_id_that_was_used_is_refused_in_the_later_line() -> None:
    lines = read_lines(b'{"prompt": "a", "id": "2"}\n{"prompt": "b", "id": "x"}\n{"prompt": "c"}', "f")
    assert [line.error is None for line in lines] == [True, True, False]
    assert lines[2].error is not None
    assert (lines[2].error.field, lines[2].error.message) == ("id", 'id "2" is already the id of line 1')
