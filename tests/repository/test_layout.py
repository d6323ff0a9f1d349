from __future__ import annotations

import json
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from trtspec.errors import BuildError
from trtspec.front.settings import FrontSettings
from trtspec.repository.layout import lay_out
from trtspec.repository.tree import Repository
from trtspec.runtime.options import EngineOptions
from trtspec.spec.model import Checkpoint, Spec

SPEC = Spec(name="toy", target=Checkpoint(model="./toy"))
SETTINGS = FrontSettings("toy", "reference", "ngram", 4, 64, 63, 8)
OPTIONS = EngineOptions(target="/engines/target", method="ngram", method_options={"max_ngram": 3}, max_draft_len=4)


def repository(tokenizer: Path | None = Path("/engines/target")) -> Repository:
    return lay_out(SPEC, SETTINGS, OPTIONS, tokenizer, python_path=("/site", "/src"))


def configs() -> dict[str, model_config_pb2.ModelConfig]:
    files = repository().files
    return {
        path.split("/")[0]: text_format.Parse(text, model_config_pb2.ModelConfig())
        for path, text in files.items()
        if path.endswith("config.pbtxt")
    }


def test_a08_no_placeholder_survives_and_every_config_parses() -> None:
    assert not [path for path, text in repository().files.items() if "${" in text]
    assert {name: config.name for name, config in configs().items()} == {
        "toy": "toy",
        "toy_unary": "toy_unary",
        "toy__engine": "toy__engine",
    }


def test_a08_without_a_tokenizer_nothing_is_laid_out() -> None:
    with pytest.raises(BuildError, match=r"target\.tokenizer"):
        repository(None)


def test_a09_decoupled_is_said_in_every_config() -> None:
    decoupled = {name: config.model_transaction_policy.decoupled for name, config in configs().items()}
    # The front streams; the relay answers once; the engine is pulled, one answer a call.
    assert decoupled == {"toy": True, "toy_unary": False, "toy__engine": False}
    assert all(config.HasField("model_transaction_policy") for config in configs().values())


def test_the_relay_takes_and_gives_what_the_front_does() -> None:
    front, relay = configs()["toy"], configs()["toy_unary"]
    assert list(front.input) == list(relay.input)
    assert list(front.output) == list(relay.output)
    assert front.max_batch_size == relay.max_batch_size == 1
    assert all(tensor.optional for tensor in front.input)


def test_what_was_decided_is_written_beside_the_model() -> None:
    files = repository().files
    front = json.loads(files["toy/1/model.yaml"])
    assert FrontSettings.from_dict(front["settings"]) == SETTINGS
    assert front["engine"] == "toy__engine"
    engine = json.loads(files["toy__engine/1/model.yaml"])
    assert EngineOptions.from_dict(engine["options"]) == OPTIONS


def test_the_model_files_are_python_and_name_the_environment() -> None:
    for name, module in (("toy", "front"), ("toy_unary", "unary"), ("toy__engine", "engine_model")):
        source = repository().files[f"{name}/1/model.py"]
        compile(source, name, "exec")
        assert f"from trtspec.triton.{module} import TritonPythonModel" in source
        assert "['/site', '/src']" in source
