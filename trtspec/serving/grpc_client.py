"""Asks a server over gRPC, streaming. Imports tritonclient, so it is loaded only for a grpc:// URL."""

from __future__ import annotations

import json
import queue
from collections.abc import Generator, Mapping
from typing import Any

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from trtspec.errors import RequestError, ServeError
from trtspec.repository.interface import FRONT_INPUTS, is_front
from trtspec.serving.http_client import TIMEOUT_SECONDS, address_of, no_server

_NUMPY: Mapping[str, Any] = {
    "STRING": np.object_,
    "INT32": np.int32,
    "UINT64": np.uint64,
    "FP32": np.float32,
    "BOOL": np.bool_,
}
_WIRE: Mapping[str, str] = {"STRING": "BYTES"}
_TYPES = {tensor.name: tensor.type for tensor in FRONT_INPUTS}


class GrpcServer:
    def __init__(self, url: str) -> None:
        host, port = address_of(url, "grpc", 8001)
        self.url = url
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def ready(self) -> bool:
        with self._client() as client:
            try:
                return bool(client.is_server_ready())
            except InferenceServerException:
                return False

    def fronts(self) -> list[str]:
        with self._client() as client:
            try:
                index = client.get_model_repository_index().models
            except InferenceServerException as error:
                raise _explained(error, self.url) from error
        return [entry.name for entry in index if is_front(entry.name)]

    def command(self, model: str, command: str) -> dict[str, Any]:
        for outputs in self.stream(model, {"command": command}):
            if "status" in outputs:
                answer: dict[str, Any] = json.loads(outputs["status"][0])
                return answer
        raise ServeError(f"{model} gave no answer to {command}", code="broken_stream")

    def stream(self, model: str, fields: Mapping[str, Any]) -> Generator[dict[str, Any], None, None]:
        """The outputs of each response, as they come. Closing the iterator early cancels the request."""
        answers: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
        inputs = [_input(name, value) for name, value in {**fields, "stream": True}.items()]
        ended = False
        with self._client() as client:
            client.start_stream(lambda result, error: answers.put((result, error)))
            try:
                client.async_stream_infer(model, inputs, enable_empty_final_response=True)
                while not ended:
                    result, error = answers.get(timeout=TIMEOUT_SECONDS)
                    if error is not None:
                        raise _explained(error, self.url)
                    response = result.get_response()
                    ended = response.parameters["triton_final_response"].bool_param
                    if response.outputs:
                        yield {output.name: _values(result, output.name) for output in response.outputs}
            except InferenceServerException as error:
                raise _explained(error, self.url) from error
            except queue.Empty:
                raise no_server(self.url, f"nothing came for {TIMEOUT_SECONDS:.0f} s") from None
            finally:
                client.stop_stream(cancel_requests=not ended)

    def _client(self) -> Any:
        return triton.InferenceServerClient(self._address)


def _input(name: str, value: Any) -> Any:
    kind = _TYPES[name]
    entries = value if isinstance(value, list) else [value]
    if kind == "STRING":
        entries = [_encoded(name, entry) for entry in entries]
    array = np.array([entries], dtype=_NUMPY[kind])
    tensor = triton.InferInput(name, list(array.shape), _WIRE.get(kind, kind))
    tensor.set_data_from_numpy(array)
    return tensor


def _encoded(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise RequestError(name, f"{name} is no valid text: {error.reason}") from error


def _values(result: Any, name: str) -> list[Any]:
    flat = result.as_numpy(name).ravel().tolist()
    return [entry.decode() if isinstance(entry, bytes) else entry for entry in flat]


def _explained(error: Any, url: str) -> ServeError:
    if "UNAVAILABLE" in str(error.status()) and "connect" in str(error.message()).lower():
        return no_server(url, str(error.message()))
    return ServeError(str(error.message()), code="refused")
