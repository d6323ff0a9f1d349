from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trtspec.check import CheckFacts, Finding, MachineFacts, ModelFacts, check
from trtspec.errors import CheckpointError
from trtspec.finding import finding_of, passes
from trtspec.pair import difference
from trtspec.runtime.config import ModelConfig
from trtspec.spec.load import parse_spec
from trtspec.spec.model import Spec

GIB = 2**30
CONFIG = ModelConfig(
    family="llama",
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    norm_eps=1e-5,
    max_positions=4096,
)
PLAIN = "name: demo\nruntime: reference\ntarget: {model: ./target}\n"
PAIR = PLAIN + "speculation: {method: draft_target, draft: {model: ./draft}}\n"


@dataclass(frozen=True)
class Headers:
    config: ModelConfig = CONFIG
    dtype: str = "bfloat16"
    parameters: int = 1000
    quantization: str | None = None


@dataclass(frozen=True)
class Words:
    """A vocabulary of the letters of a text; a blank is an id without a token."""

    letters: str

    @property
    def vocab_size(self) -> int:
        return len(self.letters)

    def token(self, token_id: int) -> str | None:
        letter = self.letters[token_id : token_id + 1]
        return letter if letter.strip() else None


@dataclass(frozen=True)
class Card:
    name: str = "H100"
    memory_bytes: int = 80 * GIB
    compute: str = "9.0"


ALPHABET = "".join(chr(33 + number) for number in range(60))
TARGET = ModelFacts(Headers(parameters=6000), Words(ALPHABET))
DRAFT = ModelFacts(Headers(parameters=1000), Words(ALPHABET))
BOTH = {"target": TARGET, "draft": DRAFT}
MACHINE = MachineFacts(memory_bytes=8 * GIB, disk_free_bytes=100 * GIB, compiler="/usr/bin/g++")


def spec_of(text: str) -> Spec:
    spec = parse_spec(text, "spec.yaml", Path("/specs")).spec
    assert spec is not None
    return spec


def findings(
    text: str, models: dict[str, ModelFacts] | None = None, machine: MachineFacts | None = MACHINE
) -> list[Finding]:
    return check(spec_of(text), CheckFacts(BOTH if models is None else models, machine))


def codes(found: list[Finding]) -> list[tuple[str, str]]:
    """Without what is said of every spec for another runtime."""
    return [(one.severity, one.code) for one in found if one.code != "not_built_yet"]


def only(found: list[Finding], code: str) -> Finding:
    (one,) = (one for one in found if one.code == code)
    return one


def with_config(facts: ModelFacts, **changes: Any) -> ModelFacts:
    assert isinstance(facts.headers, Headers)
    config = dataclasses.replace(facts.headers.config, **changes)
    return dataclasses.replace(facts, headers=dataclasses.replace(facts.headers, config=config))


def with_headers(facts: ModelFacts, **changes: Any) -> ModelFacts:
    assert isinstance(facts.headers, Headers)
    return dataclasses.replace(facts, headers=dataclasses.replace(facts.headers, **changes))


def test_a_sound_pair_has_no_findings() -> None:
    assert findings(PAIR) == []


def test_nothing_known_is_no_error() -> None:
    found = findings(PAIR, {}, None)
    assert codes(found) == [("info", "not_on_disk")] * 2
    assert [(one.where, one.line) for one in found] == [("target.model", 3), ("speculation.draft.model", 4)]
    assert passes(found)


def test_a01_padding_rows_may_differ() -> None:
    found = findings(PAIR, {"target": TARGET, "draft": with_config(DRAFT, vocab_size=62)})
    one = only(found, "vocabulary_rows")
    assert one.severity == "info"
    assert "64 rows" in one.message and "62" in one.message
    assert passes(found)


def test_a01_rows_differ_and_tokens_were_not_compared() -> None:
    draft = dataclasses.replace(with_config(DRAFT, vocab_size=62), vocabulary=None)
    assert only(findings(PAIR, {"target": TARGET, "draft": draft}), "vocabulary_rows").severity == "warning"


def test_a02_same_size_and_different_tokens() -> None:
    letters = list(ALPHABET)
    letters[7] = "y"
    one = only(findings(PAIR, {**BOTH, "draft": dataclasses.replace(DRAFT, vocabulary=Words("".join(letters)))}),
               "vocabulary")  # fmt: skip
    assert one.severity == "error"
    assert one.message == 'id 7 is "(" in the target, "y" in the draft'
    assert (one.where, one.line, one.column) == ("speculation.draft.model", 4, 52)


def test_a02_a_shorter_vocabulary() -> None:
    short = dataclasses.replace(DRAFT, vocabulary=Words(ALPHABET[:58]))
    one = only(findings(PAIR, {**BOTH, "draft": short}), "vocabulary")
    assert one.message == f'id 58 is "{ALPHABET[58]}" in the target, no token in the draft; 2 ids differ'


def test_a02_rows_are_not_called_padding_where_tokens_differ() -> None:
    other = dataclasses.replace(with_config(DRAFT, vocab_size=62), vocabulary=Words(ALPHABET[::-1]))
    assert codes(findings(PAIR, {**BOTH, "draft": other})) == [("error", "vocabulary")]


def test_a02_every_draft_of_specinfer_is_compared() -> None:
    text = PLAIN + "speculation: {method: specinfer, drafts: [{model: ./a}, {model: ./b}]}\n"
    other = dataclasses.replace(DRAFT, vocabulary=Words(ALPHABET[::-1]))
    found = findings(text, {"target": TARGET, "drafts.0": DRAFT, "drafts.1": other})
    assert only(found, "vocabulary").where == "speculation.drafts.1.model"


def test_ids_without_token_on_both_sides_are_alike() -> None:
    assert difference(Words("ab "), Words("ab")) is None
    assert difference(Words("ab c"), Words("ab c")) is None
    assert difference(Words("ab c"), Words("ab d")) is not None


def test_more_tokens_than_rows() -> None:
    found = findings(PLAIN, {"target": with_config(TARGET, vocab_size=50)})
    assert only(found, "tokenizer_size").message == "the tokenizer has 60 tokens and the output matrix only 50 rows"


@pytest.mark.parametrize(("parameters", "hinted"), [(3999, True), (4000, False), (10000, False), (10001, True)])
def test_size_ratio_outside_4_to_10_is_a_hint(parameters: int, hinted: bool) -> None:
    found = findings(PAIR, {"target": with_headers(TARGET, parameters=parameters), "draft": DRAFT})
    assert codes(found) == ([("info", "size_ratio")] if hinted else [])


@pytest.mark.parametrize(
    ("options", "nearest"),
    [
        ("{method: suffix}", "ngram"),
        ("{method: lookahead}", "ngram"),
        ("{method: specinfer, drafts: [{model: ./d}]}", "draft_target"),
        ("{method: medusa, head: ./h}", "draft_target"),
        ("{method: eagle, head: ./h}", "draft_target"),
        ("{method: eagle3, head: ./h}", "draft_target"),
        ("{method: mtp}", "draft_target"),
        ("{method: redrafter, head: ./h}", "draft_target"),
    ],
)
def test_methods_without_a_reference_runtime_are_refused_with_the_nearest(options: str, nearest: str) -> None:
    one = only(findings(PLAIN + f"speculation: {options}\n", {}), "unsupported_method")
    assert one.severity == "error"
    assert one.message.endswith(f"nearest that does: method {nearest}")
    assert (one.where, one.line) == ("speculation.method", 4)


@pytest.mark.parametrize("options", ["{method: none}", "{method: ngram}"])
def test_methods_with_a_reference_runtime_pass(options: str) -> None:
    assert findings(PLAIN + f"speculation: {options}\n") == []


@pytest.mark.parametrize(
    ("key", "value"), [("tree", "[[0], [0, 0], [0, 0, 0], [0, 0, 0, 0]]"), ("min_confidence", "0.5")]
)
def test_options_that_the_reference_runtime_lacks(key: str, value: str) -> None:
    text = PLAIN + f"speculation: {{method: draft_target, {key}: {value}, draft: {{model: ./draft}}}}\n"
    one = only(findings(text), "unsupported_option")
    assert one.severity == "error"
    assert one.message.endswith(f"nearest that does: {key}: null")


def test_exact_is_refused_until_it_runs() -> None:
    one = only(findings(PLAIN + "reference: {exact: true}\n"), "unsupported_option")
    assert (one.severity, one.where, one.line) == ("error", "reference.exact", 4)
    assert "dtype: float32" in one.message


def test_kv_tokens_are_of_the_reference_runtime() -> None:
    text = "name: demo\nruntime: tensorrt\nlimits: {kv_tokens: 9000}\ntarget: {model: ./t}\n"
    machine = dataclasses.replace(MACHINE, gpus=(Card(),), accelerated=True)
    assert codes(findings(text, {"target": TARGET}, machine)) == [("warning", "unused")]


@pytest.mark.parametrize("runtime", ["tensorrt", "pytorch"])
def test_a_runtime_that_is_only_planned_is_a_warning(runtime: str) -> None:
    one = only(findings(f"name: demo\nruntime: {runtime}\ntarget: {{model: ./t}}\n"), "not_built_yet")
    assert (one.severity, one.where, one.line) == ("warning", "runtime", 2)
    assert f"plans runtime {runtime} and does not build it yet" in one.message
    assert [one for one in findings(PLAIN) if one.code == "not_built_yet"] == []


def test_gate_keys_that_nothing_acts_on_are_named() -> None:
    found = findings(PLAIN + "gate: {min_acceptance: 0.5, policy: break_even, off_when: {batch_above: 2}}\n")
    assert [(one.severity, one.where) for one in found] == [("info", "gate.min_acceptance"), ("info", "gate.policy")]
    assert findings(PLAIN + 'gate: {policy: "off"}\n') == []


def test_a_draft_as_long_as_a_request_is_a_warning() -> None:
    text = PLAIN + "limits: {max_seq_len: 8}\nspeculation: {method: ngram, max_draft_len: 9}\n"
    found = findings(text + "routes: {code: {max_draft_len: 8}, chat: {max_draft_len: 7}}\n")
    assert [(one.severity, one.code, one.where) for one in found] == [
        ("warning", "draft_too_long", "speculation.max_draft_len"),
        ("warning", "draft_too_long", "routes.code.max_draft_len"),
    ]
    assert "max_draft_len 9" in found[0].message and "max_seq_len 8" in found[0].message


def test_an_address_of_another_machine_is_said_once_and_not_as_busy_ports() -> None:
    machine = dataclasses.replace(
        MACHINE, busy_ports=frozenset({8000, 8001, 8002}), foreign_hosts=frozenset({"192.0.2.1"})
    )
    found = findings(PLAIN + "serving: {host: 192.0.2.1}\n", machine=machine)
    assert codes(found) == [("warning", "foreign_host"), ("info", "open_host")]


def test_an_unknown_release_is_one_finding_with_its_place() -> None:
    (one,) = findings('name: demo\nrelease: "1.2.3"\ntarget: {model: ./target}\n')
    assert (one.code, one.where, one.line) == ("unknown_release", "release", 2)
    assert one.hint and "1.2.1" in one.hint


def test_pytorch_below_1_2_0_names_the_nearest() -> None:
    text = 'name: demo\nrelease: "1.1.0"\nruntime: pytorch\ntarget: {model: hf:a/b}\n'
    one = only(findings(text, {}), "unsupported_method")
    assert (one.where, one.line) == ("runtime", 3)
    assert "1.2.1" in one.message


def test_a_method_that_a_release_has_and_no_build_makes() -> None:
    text = "name: demo\nruntime: tensorrt\ntarget: {model: hf:a/b}\nspeculation: {method: medusa, head: ./h}\n"
    assert "medusa is not built for runtime tensorrt" in only(findings(text, {}), "unsupported_method").message


def test_gguf_is_for_the_reference_runtime() -> None:
    text = "name: demo\nruntime: tensorrt\ntarget: {model: ./model.gguf}\n"
    assert only(findings(text, {}), "unsupported_format").severity == "error"
    assert findings(text.replace("tensorrt", "reference")) == []


def test_auto_is_reference_without_an_accelerator_and_tensorrt_with_one() -> None:
    text = "name: demo\ntarget: {model: ./model.gguf}\nspeculation: {method: suffix}\n"
    assert "runtime reference" in only(findings(text, {}), "unsupported_method").message
    accelerated = dataclasses.replace(MACHINE, gpus=(Card(),), accelerated=True)
    assert "runtime tensorrt" in only(findings(text, {}, accelerated), "unsupported_format").message


def test_a_checkpoint_that_cannot_be_read() -> None:
    problem = CheckpointError("family gemma is not supported", where="/specs/target", hint="use llama")
    one = only(findings(PLAIN, {"target": ModelFacts(problem=problem)}), "checkpoint")
    assert (one.severity, one.where, one.line) == ("error", "target.model", 3)
    assert (one.message, one.hint) == ("family gemma is not supported", "use llama")


def test_a_tokenizer_that_cannot_be_read_is_said_and_the_rest_is_checked() -> None:
    facts = dataclasses.replace(TARGET, vocabulary=None, problem=CheckpointError("no tokenizer.json"))
    text = PLAIN + "limits: {max_seq_len: 5000}\n"
    assert codes(findings(text, {"target": facts})) == [("error", "checkpoint"), ("error", "too_long")]


def test_longer_than_the_models_positions() -> None:
    one = only(findings(PLAIN + "limits: {max_seq_len: 5000}\n"), "too_long")
    assert one.message == "max_seq_len 5000 is more than the 4096 positions of the target"
    assert (one.where, one.line, one.column) == ("limits.max_seq_len", 4, 23)
    assert findings(PLAIN + "limits: {max_seq_len: 4096}\n") == []


def test_input_longer_than_a_short_model() -> None:
    assert only(findings(PLAIN + "limits: {max_input_len: 4096}\n"), "too_long").hint == "write 4095 or less"
    assert findings(PLAIN + "limits: {max_input_len: 4095}\n") == []


@pytest.mark.parametrize("written", ["", ", max_seq_len: 4096"])
def test_kv_tokens_hold_one_longest_request(written: str) -> None:
    one = only(findings(PLAIN + f"limits: {{kv_tokens: 4095{written}}}\n"), "kv_too_small")
    assert "4095" in one.message and "4096" in one.message
    assert (one.severity, one.where) == ("warning", "limits.kv_tokens")
    assert findings(PLAIN + "limits: {kv_tokens: 4096}\n") == []


def test_a_draft_with_fewer_positions_is_a_warning() -> None:
    one = only(findings(PAIR, {**BOTH, "draft": with_config(DRAFT, max_positions=2048)}), "draft_too_short")
    assert (one.severity, "2048" in one.message, "4096" in one.message) == ("warning", True, True)


def test_quantization_under_reference_is_a_warning_for_each_model() -> None:
    quantized = "quantization: {weights: fp8, kv_cache: fp8}"
    text = PAIR.replace("./target", f"./target, {quantized}").replace("./draft", f"./draft, {quantized}")
    found = findings(text)
    assert codes(found) == [("warning", "not_quantized")] * 2
    assert found[0].message == "runtime reference computes in bfloat16 and does not apply weights fp8 and kv_cache fp8"
    assert [one.where for one in found] == ["target.quantization", "speculation.draft.quantization"]


def test_a_plain_checkpoint_that_is_called_quantized() -> None:
    text = PLAIN.replace("./target", "./target, quantization: {weights: checkpoint}")
    assert only(findings(text), "not_quantized").severity == "error"
    assert findings(text, {"target": with_headers(TARGET, quantization="fp8")}) == []


def test_memory_counts_weights_and_both_caches() -> None:
    # per token: 2 (K and V) x 2 layers x 2 KV heads x 8 x 2 bytes = 128; weights: 2 bytes each
    needed = 2 * (6000 + 1000) + 100 * (128 + 128)
    text = PAIR + "limits: {max_seq_len: 100}\n"
    assert findings(text, machine=dataclasses.replace(MACHINE, memory_bytes=needed)) == []
    one = only(findings(text, machine=dataclasses.replace(MACHINE, memory_bytes=needed - 1)), "memory")
    assert (one.severity, one.where) == ("error", "limits.max_seq_len")
    assert "13.7 KiB" in one.message and "25.0 KiB" in one.message and "100 tokens" in one.message


def test_memory_counts_kv_tokens_where_they_are_written() -> None:
    needed = 2 * 6000 + 1000 * 128
    text = PLAIN + "limits: {max_seq_len: 100, kv_tokens: 1000}\n"
    assert findings(text, machine=dataclasses.replace(MACHINE, memory_bytes=needed)) == []
    found = findings(text, machine=dataclasses.replace(MACHINE, memory_bytes=needed - 1))
    assert only(found, "memory").where == "limits.kv_tokens"


def test_memory_of_each_gpu_counts_shares_and_quantization() -> None:
    # FP8 halves the decoder's matrices, not the embedding and output matrix (2 x 64 x 32 values of 2 bytes)
    text = (
        "name: demo\nruntime: tensorrt\nlimits: {max_seq_len: 100}\n"
        "target: {model: ./target, tensor_parallel: 2, quantization: {weights: fp8, kv_cache: fp8}}\n"
    )
    needed = (4096 * 2 + 1904) // 2 + 100 * 64 // 2
    for spare, wanted in ((0, []), (-1, [("error", "memory")])):
        cards = (Card(memory_bytes=needed + spare), Card())
        machine = dataclasses.replace(MACHINE, gpus=cards, accelerated=True)
        assert codes(findings(text, {"target": TARGET}, machine)) == wanted


def test_memory_that_the_spec_plans_with() -> None:
    text = "name: demo\nruntime: tensorrt\ntarget: {model: ./t}\n"
    text += "limits: {gpu_memory: {total_bytes: 10, reserve_bytes: 1}}\n"
    machine = dataclasses.replace(MACHINE, gpus=(Card(),), accelerated=True)
    assert only(findings(text, {"target": TARGET}, machine), "memory").message.endswith("of 9 bytes")


def test_memory_is_not_judged_before_all_models_are_known() -> None:
    tight = dataclasses.replace(MACHINE, memory_bytes=1)
    assert "memory" not in [one.code for one in findings(PAIR, {"target": TARGET}, tight)]


def test_disk() -> None:
    text = PAIR
    assert findings(text, machine=dataclasses.replace(MACHINE, disk_free_bytes=14000)) == []
    one = only(findings(text, machine=dataclasses.replace(MACHINE, disk_free_bytes=13999)), "disk")
    assert one.severity == "error"


def test_gpus_for_the_gpu_runtimes() -> None:
    text = "name: demo\nruntime: tensorrt\ntarget: {model: ./t, tensor_parallel: 4}\n"
    assert codes(findings(text, {"target": TARGET})) == [("info", "no_gpu")]
    two = dataclasses.replace(MACHINE, gpus=(Card(), Card()), accelerated=True)
    one = only(findings(text, {"target": TARGET}, two), "too_few_gpus")
    assert one.message == "4 GPUs are asked for (tensor_parallel x pipeline_parallel), 2 are here"


@pytest.mark.parametrize(
    ("compute", "good"), [("8.0", False), ("8.6", False), ("8.9", True), ("9.0", True), ("12.0", True)]
)
def test_fp8_needs_ada_or_later(compute: str, good: bool) -> None:
    text = "name: demo\nruntime: tensorrt\ntarget: {model: ./t, quantization: {weights: fp8}}\n"
    machine = dataclasses.replace(MACHINE, gpus=(Card(name="card", compute=compute),), accelerated=True)
    found = findings(text, {"target": TARGET}, machine)
    assert codes(found) == ([] if good else [("error", "no_fp8")])


def test_heads_that_gpus_cannot_share() -> None:
    text = "name: demo\nruntime: tensorrt\ntarget: {model: ./t, tensor_parallel: 3}\n"
    machine = dataclasses.replace(MACHINE, gpus=(Card(),) * 3, accelerated=True)
    one = only(findings(text, {"target": TARGET}, machine), "indivisible")
    assert "4 attention heads cannot be shared by 3 GPUs" in one.message


def test_reference_says_that_it_uses_one_device() -> None:
    text = PLAIN.replace("./target", "./target, tensor_parallel: 4")
    assert codes(findings(text)) == [("info", "not_parallel")]


def test_busy_ports_are_warnings_at_their_keys() -> None:
    text = PLAIN + "serving: {grpc_port: 9001}\n"
    found = findings(text, machine=dataclasses.replace(MACHINE, busy_ports=frozenset({8000, 9001})))
    assert codes(found) == [("warning", "busy_port")] * 2
    assert [(one.where, one.line) for one in found] == [("serving.http_port", 4), ("serving.grpc_port", 4)]


@pytest.mark.parametrize(("host", "said"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)])
def test_an_open_host_is_said(host: str, said: bool) -> None:
    found = findings(PLAIN + f"serving: {{host: {host}}}\n")
    assert codes(found) == ([("info", "open_host")] if said else [])


@pytest.mark.parametrize(("wanted", "severity"), [("auto", "info"), ("on", "error"), ("off", None)])
def test_no_compiler_means_no_native_kernels(wanted: str, severity: str | None) -> None:
    bare = dataclasses.replace(MACHINE, compiler=None)
    found = findings(PLAIN + f"reference: {{compile: {wanted}}}\n", machine=bare)
    assert codes(found) == ([] if severity is None else [(severity, "no_compiler")])


def test_a_route_that_always_speculates_needs_a_method() -> None:
    text = PLAIN + "routes: {code: {speculation: always}}\n"
    assert codes(findings(text)) == [("warning", "nothing_drafted")]
    assert findings(text + "speculation: {method: ngram}\n") == []


def test_the_gravest_come_first_then_the_files_order() -> None:
    text = (
        "name: demo\nruntime: reference\nserving: {host: 0.0.0.0}\n"
        "target: {model: ./target, quantization: {weights: fp8}}\n"
        "limits: {max_seq_len: 5000}\nspeculation: {method: suffix}\n"
    )
    found = findings(text, machine=dataclasses.replace(MACHINE, compiler=None))
    assert codes(found) == [
        ("error", "too_long"),
        ("error", "unsupported_method"),
        ("warning", "not_quantized"),
        ("info", "no_compiler"),
        ("info", "open_host"),
    ]


def test_an_error_of_the_file_becomes_a_finding() -> None:
    (error,) = parse_spec("nam: demo\ntarget: {model: ./m}\n", "spec.yaml", Path("/")).errors
    assert finding_of(error).to_dict() == {
        "code": "unknown_key",
        "severity": "error",
        "where": "nam",
        "line": 1,
        "column": 1,
        "message": "nam is not a key of a spec",
        "hint": error.hint,
    }


def test_a_check_neither_reads_nor_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(PAIR)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a check must not touch files")

    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr("io.open", refuse)
    assert check(spec, CheckFacts(BOTH, MACHINE)) == []
