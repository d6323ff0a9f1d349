"""The plan: a pure value with exact command lines, per runtime."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from trtspec.errors import SpecError
from trtspec.known import Known
from trtspec.plan import Plan, plan, render
from trtspec.runtime.config import ModelConfig
from trtspec.spec.model import Spec
from trtspec.steps import Compiler, Places
from trtspec.trtllm.releases import Runtime

PLACES = Places(Path("/e"), Path("/m"))
COMPILER = Compiler(lambda out: ["g++", "-o", out, "/somewhere/kernels.cpp"], "fingerprint")


@dataclasses.dataclass(frozen=True)
class Headers:
    config: ModelConfig
    dtype: str = "bfloat16"
    parameters: int = 1_000_000


def _known(name: str, *, identity: str | None = None, family: str = "llama", dtype: str = "bfloat16") -> Known:
    config = ModelConfig(family, 1000, 64, 128, 4, 4, 2, 16, 1e-5, 2048)
    return Known(Path(f"/models/{name}"), Headers(config, dtype), identity or f"id-{name}")


def _spec(speculation: dict[str, Any] | None = None, **keys: Any) -> Spec:
    data: dict[str, Any] = {"name": "demo", "target": {"model": "./big"}, **keys}
    if speculation is not None:
        data["speculation"] = speculation
    return Spec.model_validate(data)


def _pair(**keys: Any) -> Spec:
    return _spec({"method": "draft_target", "draft": {"model": "./small"}}, **keys)


def _plan(spec: Spec, runtime: Runtime = "reference", compiler: Compiler | None = COMPILER) -> Plan:
    known = {"target": _known("big"), "draft": _known("small")}
    return plan(spec, known, runtime, PLACES, compiler=compiler)


def _flags(argv: tuple[str, ...]) -> dict[str, str]:
    words = list(argv)
    return {name: words[at + 1] for at, name in enumerate(words) if name.startswith("--")}


def test_reference_steps_of_a_pair() -> None:
    planned = _plan(_pair())
    assert [step.id for step in planned.steps] == ["pack-target", "pack-draft", "compile-kernels", "repository"]
    assert [step.role for step in planned.steps] == ["target", "draft", "kernels", "repository"]
    kernels = planned.steps[2]
    assert kernels.argv == ("g++", "-o", f"{kernels.output}/kernels.so", "/somewhere/kernels.cpp")
    assert planned.steps[3].inputs == tuple(str(step.output) for step in planned.steps[:3])
    assert planned.models == ("demo", "demo_unary", "demo__engine")


def test_without_a_compiler_there_are_no_kernels() -> None:
    assert [step.id for step in _plan(_spec(), compiler=None).steps] == ["pack-target", "repository"]


@pytest.mark.parametrize(("compile_", "optional"), [("auto", True), ("on", False)])
def test_kernels_may_fail_under_auto_only(compile_: str, optional: bool) -> None:
    planned = _plan(_spec(reference={"compile": compile_}))
    assert next(step for step in planned.steps if step.id == "compile-kernels").optional is optional


def test_the_json_of_the_design() -> None:
    document = _plan(_pair()).to_dict()
    assert json.loads(json.dumps(document)) == document
    assert {"name", "release", "runtime", "method", "steps", "repository", "memory"} <= document.keys()
    assert document["method"] == "draft_target"
    keys = {"id", "role", "kind", "argv", "env", "inputs", "output", "key", "cached"}
    assert all(keys <= step.keys() for step in document["steps"])
    assert document["repository"] == {"path": "/m", "models": ["demo", "demo_unary", "demo__engine"]}
    assert document["memory"]["target"] == {
        "weights_bytes": 2_000_000,
        "kv_bytes_per_token": 2 * 4 * 2 * 16 * 2,
        "kv_bytes": None,
        "kv_tokens": None,
    }


def test_one_model_has_no_draft_memory() -> None:
    assert _plan(_spec()).to_dict()["memory"]["draft"] is None


def test_what_is_not_on_disk_has_no_key_and_no_memory() -> None:
    spec = _spec(target={"model": "hf:org/big", "revision": "v1"})
    planned = plan(spec, {"target": None}, "reference", PLACES)
    assert [step.id for step in planned.steps] == ["fetch-target", "pack-target", "repository"]
    assert [step.key for step in planned.steps] == [None, None, None]
    assert planned.steps[0].inputs == ("hf:org/big@v1",)
    assert planned.to_dict()["memory"] is None
    assert "not on disk" in planned.notes[0]


def test_what_is_not_hashed_has_memory_and_no_key() -> None:
    known = dataclasses.replace(_known("big"), identity=None)
    planned = plan(_spec(), {"target": known}, "reference", PLACES)
    assert planned.steps[0].key is None and planned.steps[0].disk_bytes == 2_000_000
    assert planned.to_dict()["memory"]["target"]["weights_bytes"] == 2_000_000


def test_keys_follow_what_changes_the_output_and_nothing_else() -> None:
    def key(spec: Spec, known: Known) -> str | None:
        return plan(spec, {"target": known}, "reference", PLACES).steps[0].key

    base = key(_spec(), _known("big"))
    assert base == key(_spec(limits={"max_batch_size": 3}, serving={"http_port": 9000}), _known("big"))
    moved = dataclasses.replace(_known("big"), path=Path("/elsewhere"))
    assert base == key(_spec(), moved)
    assert base != key(_spec(), _known("big", identity="other weights"))
    assert base != key(_spec(target={"model": "./big", "dtype": "float32"}), _known("big"))
    assert base == key(_spec(target={"model": "./big", "dtype": "bfloat16"}), _known("big"))


def test_where_the_kernels_source_lies_is_not_in_their_key() -> None:
    other = Compiler(lambda out: ["/opt/g++", "-o", out, "/moved/kernels.cpp"], "fingerprint")
    changed = Compiler(COMPILER.argv, "another source")
    keys = [_plan(_spec(), compiler=one).steps[1].key for one in (COMPILER, other, changed)]
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize(
    ("wanted", "own", "expected"),
    [
        ("auto", "bfloat16", "bfloat16"),
        ("auto", "float32", "float32"),
        ("float32", "bfloat16", "float32"),
        ("auto", "q4_k", "bfloat16"),
    ],
)
def test_packed_dtype(wanted: str, own: str, expected: str) -> None:
    spec = _spec(target={"model": "./big", "dtype": wanted})
    planned = plan(spec, {"target": _known("big", dtype=own)}, "reference", PLACES)
    assert planned.steps[0].settings["dtype"] == expected


def test_kv_tokens_of_the_reference_runtime() -> None:
    def tokens(memory: int | None, **limits: int) -> int | None:
        spec = _spec(limits={"max_seq_len": 512, "max_batch_size": 4, **limits})
        found = plan(spec, {"target": _known("big")}, "reference", PLACES, memory_bytes=memory).memory["target"]
        return None if found is None else found.kv_tokens

    assert tokens(1 << 40) == 4 * 512  # every row at its longest is enough
    assert tokens(1024 * 512 * 2) == 1024  # half of the memory, 512 bytes a token
    assert tokens(0) == 512  # one longest request always fits
    assert tokens(1 << 40, kv_tokens=777) == 777
    assert tokens(None) is None


def test_fp8_under_the_reference_runtime_is_said() -> None:
    spec = _spec(target={"model": "./big", "quantization": {"weights": "fp8"}})
    planned = _plan(spec)
    assert any("bfloat16" in note and "fp8" in note for note in planned.notes)
    memory = planned.memory["target"]
    assert memory is not None and memory.weights_bytes == 2_000_000


FP8 = {"weights": "fp8", "kv_cache": "fp8"}


def _engines() -> Spec:
    return _spec(
        {"method": "draft_target", "max_draft_len": 5, "draft": {"model": "./small", "quantization": FP8}},
        target={"model": "./big", "quantization": FP8, "tensor_parallel": 4},
        limits={"max_batch_size": 64, "max_seq_len": 2048, "max_num_tokens": 4096},
    )


def test_tensorrt_engines_of_a_pair() -> None:
    planned = _plan(_engines(), "tensorrt")
    ids = ["quantize-target", "build-target", "quantize-draft", "build-draft", "repository"]
    assert [step.id for step in planned.steps] == ids
    quantize, target, _, draft, _ = planned.steps
    assert quantize.argv[:2] == ("python3", "examples/quantization/quantize.py")
    flags = _flags(quantize.argv)
    assert (flags["--qformat"], flags["--kv_cache_dtype"], flags["--tp_size"]) == ("fp8", "fp8", "4")
    assert (flags["--model_dir"], flags["--output_dir"]) == ("/models/big", str(quantize.output))
    assert target.argv[0] == draft.argv[0] == "trtllm-build"
    assert target.kind == "compile"
    built, drafting = _flags(target.argv), _flags(draft.argv)
    assert built["--checkpoint_dir"] == str(quantize.output)
    assert (built["--speculative_decoding_mode"], built["--max_draft_len"]) == ("draft_tokens_external", "5")
    assert not {"--speculative_decoding_mode", "--max_draft_len"} & drafting.keys()
    for flags in (built, drafting):
        assert flags["--use_paged_context_fmha"] == "enable"
        assert (flags["--max_batch_size"], flags["--max_beam_width"]) == ("64", "1")
        assert (flags["--max_seq_len"], flags["--max_input_len"], flags["--max_num_tokens"]) == ("2048", "2047", "4096")
    assert built["--workers"] == "4" and "--workers" not in drafting
    assert planned.models == ("demo", "demo_unary", "demo__target", "demo__draft")


def test_every_build_flag_is_in_the_contract() -> None:
    """tensorrt_llm/commands/build.py @ 65f1d153 and examples/quantization/quantize.py @ 059c97c1."""
    build = {
        *("--checkpoint_dir", "--output_dir", "--max_batch_size", "--max_input_len", "--max_seq_len"),
        *("--max_num_tokens", "--max_beam_width", "--kv_cache_type", "--use_paged_context_fmha", "--workers"),
        *("--speculative_decoding_mode", "--max_draft_len"),
    }
    quantize = {
        *("--model_dir", "--output_dir", "--dtype", "--qformat", "--calib_dataset", "--calib_size"),
        *("--calib_max_seq_length", "--tp_size", "--pp_size", "--kv_cache_dtype"),
    }
    for step in _plan(_engines(), "tensorrt").steps[:-1]:
        assert _flags(step.argv).keys() <= (build if step.kind == "compile" else quantize)


def test_a06_lookahead_is_built_with_its_derived_length() -> None:
    spec = _spec({"method": "lookahead"})
    flags = _flags(_plan(spec, "tensorrt").steps[1].argv)
    assert (flags["--speculative_decoding_mode"], flags["--max_draft_len"]) == ("lookahead_decoding", "83")


def test_plain_and_zero_length_engines_have_no_mode() -> None:
    for spec in (_spec(), _spec({"method": "ngram", "max_draft_len": 0})):
        assert "--speculative_decoding_mode" not in _plan(spec, "tensorrt").steps[1].argv


@pytest.mark.parametrize(
    ("family", "script"), [("llama", "llama"), ("mistral", "llama"), ("qwen2", "qwen"), ("qwen3", "qwen")]
)
def test_unquantized_models_are_converted_by_family(family: str, script: str) -> None:
    planned = plan(_spec(), {"target": _known("big", family=family)}, "tensorrt", PLACES)
    assert planned.steps[0].id == "convert-target"
    assert planned.steps[0].argv[1] == f"examples/models/core/{script}/convert_checkpoint.py"


def test_a_family_without_a_conversion_is_refused() -> None:
    with pytest.raises(SpecError, match="family gemma"):
        plan(_spec(), {"target": _known("big", family="gemma")}, "tensorrt", PLACES)


def test_a_quantized_checkpoint_goes_straight_to_the_engine() -> None:
    spec = _spec(target={"model": "./big", "quantization": {"weights": "checkpoint"}})
    planned = _plan(spec, "tensorrt")
    assert [step.id for step in planned.steps] == ["build-target", "repository"]
    assert _flags(planned.steps[0].argv)["--checkpoint_dir"] == "/models/big"


def test_an_engine_is_rebuilt_when_its_checkpoint_or_release_changes() -> None:
    def key(spec: Spec, known: Known) -> str | None:
        return plan(spec, {"target": known}, "tensorrt", PLACES).steps[1].key

    base = key(_spec(), _known("big"))
    assert base is not None
    assert base != key(_spec(release="1.1.0"), _known("big"))
    assert base != key(_spec(), _known("big", identity="other"))
    assert base != key(_spec(limits={"max_batch_size": 9}), _known("big"))
    assert base == key(_spec(gate={"min_acceptance": 0.5}), _known("big"))


def test_pytorch_quantizes_and_writes_the_arguments_of_the_llm_api() -> None:
    planned = _plan(_engines(), "pytorch")
    assert [step.id for step in planned.steps] == ["quantize-target", "quantize-draft", "settings-engine", "repository"]
    assert planned.steps[0].argv[1] == "examples/llm_ptq/hf_ptq.py"
    arguments = planned.steps[2].settings
    assert arguments["model"] == str(planned.steps[0].output)
    assert arguments["tensor_parallel_size"] == 4
    assert arguments["kv_cache_config"]["dtype"] == "fp8"
    assert arguments["speculative_config"] == {
        "decoding_type": "Draft_Target",
        "max_draft_len": 5,
        "speculative_model_dir": str(planned.steps[1].output),
    }
    assert any("unverified" in note for note in planned.notes)


def test_pytorch_ngram_always_writes_its_longest_ngram() -> None:
    arguments = _plan(_spec({"method": "ngram"}), "pytorch").steps[0].settings
    assert arguments["speculative_config"] == {
        "decoding_type": "NGram",
        "max_draft_len": 4,
        "max_matching_ngram_size": 3,
    }


@pytest.mark.parametrize(
    ("speculation", "release", "runtime", "words"),
    [
        ({"method": "mtp"}, "1.2.1", "tensorrt", ["mtp", "no TensorRT-LLM release", "pytorch"]),
        ({"method": "lookahead"}, "1.2.1", "pytorch", ["lookahead", "pytorch", "tensorrt"]),
        ({"method": "ngram"}, "1.1.0", "pytorch", ["1.1.0", "1.2.1"]),
        ({"method": "ngram"}, "1.3", "tensorrt", ["1.3", "1.2.1"]),
        ({"method": "medusa", "head": {"model": "./h"}}, "1.2.1", "tensorrt", ["medusa", "draft_target"]),
        ({"method": "suffix"}, "1.2.1", "reference", ["suffix", "ngram"]),
    ],
)
def test_what_cannot_be_built_is_refused(
    speculation: dict[str, Any], release: str, runtime: Runtime, words: list[str]
) -> None:
    with pytest.raises(SpecError) as caught:
        _plan(_spec(speculation, release=release), runtime)
    assert caught.value.where == "speculation.method"
    assert all(word in caught.value.message for word in words)


def test_kv_tokens_of_engines_per_gpu() -> None:
    spec = _spec(
        target={"model": "./big", "tensor_parallel": 2},
        limits={"gpu_memory": {"total_bytes": 3_000_000, "reserve_bytes": 0}, "max_seq_len": 64},
    )
    memory = _plan(spec, "tensorrt").memory["target"]
    assert memory is not None
    # one of two GPUs: 3,000,000 less 1,000,000 of weights, at 256 of the model's 512 bytes a token
    assert memory.kv_tokens == 2_000_000 // 256
    assert memory.kv_bytes == memory.kv_tokens * 512


def test_cached_steps_are_marked() -> None:
    planned = _plan(_pair()).with_cached(frozenset({"pack-draft"}))
    assert [step.cached for step in planned.steps] == [False, True, False, False]


def test_text_for_people() -> None:
    text = render(_plan(_engines(), "tensorrt").with_cached(frozenset({"quantize-target"})))
    assert "demo: draft_target on runtime tensorrt, TensorRT-LLM 1.2.1" in text
    assert "$ trtllm-build --checkpoint_dir /e/target-quantize-" in text
    assert "quantize-target    cached" in text and "build-target       to do" in text
    assert "target: weights" in text
