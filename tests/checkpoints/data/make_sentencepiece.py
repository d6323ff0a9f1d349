"""Writes sentencepiece.json with the PyPI package `sentencepiece`: a BPE vocabulary trained here, and its encodings.

``pieces`` is [text, score, GGUF token type] by id; ``encodings`` is [text, ids]. The trainer reads TEXT below.
"""

import io
import json
from pathlib import Path

import sentencepiece

TEXT = """The quick brown fox jumps over the lazy dog. She sells sea shells by the sea shore, and the shells she sells
are surely sea shells. def add(first, second): return first + second. The other brother bothered their mother another
time. In 1969 there were 200 people; in 2024 there were 8000. Ähnliche Wörter für größere Übungen. Données déjà été.
import json, numpy as np; print(json.dumps({"key": [1, 2, 3]})). Over and over, under and under, never and ever.
""".splitlines()
TEXTS = [
    "", " ", "  ", "hello", " hello", "hello  world", "The quick brown fox", "sea shells\nby the sea\tshore", "aaaa",
    "Übungen für größere", "日本語 and 🤗", "def add(first, second):\n    return first + second", "2024 8000 12345",
    "▁ is a lower bar", "other brother another mother", "nevernever everever", "\x00\x7f", "e\u0301te\u0301",
]  # fmt: skip

model = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(TEXT * 4), model_writer=model, vocab_size=420, model_type="bpe", byte_fallback=True,
    normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=True, split_digits=True,
    character_coverage=1.0, minloglevel=2,
)  # fmt: skip
processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def kind(index: int) -> int:
    if processor.is_unknown(index):
        return 2
    if processor.is_control(index):
        return 3
    return 6 if processor.is_byte(index) else 1


pieces = [[processor.id_to_piece(i), processor.get_score(i), kind(i)] for i in range(processor.get_piece_size())]
encodings = [[text, processor.encode(text)] for text in TEXTS]
content = json.dumps({"pieces": pieces, "encodings": encodings}, ensure_ascii=True)
Path(__file__).with_name("sentencepiece.json").write_text(content + "\n")
