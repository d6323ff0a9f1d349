"""Plain Triton clients for the tests: tritonclient over gRPC, and JSON over HTTP."""

from __future__ import annotations

import http.client
import json
import queue
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient

from tests.serving.toy_server import Toy
from trtspec.repository.interface import FRONT_INPUTS
from trtspec.serving.http_client import HttpServer

TYPES = {tensor.name: tensor.type for tensor in FRONT_INPUTS}
NUMPY = {"STRING": np.object_, "INT32": np.int32, "UINT64": np.uint64, "FP32": np.float32, "BOOL": np.bool_}


def tensors(**fields: Any) -> list[grpcclient.InferInput]:
    return [tensor(name, value) for name, value in fields.items()]


def tensor(name: str, value: Any) -> grpcclient.InferInput:
    kind = TYPES[name]
    entries = value if isinstance(value, list) else [value]
    array = np.array([[entry.encode() if isinstance(entry, str) else entry for entry in entries]], dtype=NUMPY[kind])
    made = grpcclient.InferInput(name, list(array.shape), "BYTES" if kind == "STRING" else kind)
    made.set_data_from_numpy(array)
    return made


def post(toy: Toy, fields: Mapping[str, Any] | bytes, model: str = "toy", verb: str = "generate") -> tuple[int, Any]:
    """As curl does: the status and the JSON of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", toy.http_port, timeout=60)
    try:
        body = fields if isinstance(fields, bytes) else json.dumps(fields)
        connection.request("POST", f"/v2/models/{model}/{verb}", body)
        response = connection.getresponse()
        text = response.read().removeprefix(b"data:")
        return response.status, json.loads(text) if text else None
    finally:
        connection.close()


@contextmanager
def client(toy: Toy) -> Iterator[grpcclient.InferenceServerClient]:
    with grpcclient.InferenceServerClient(f"127.0.0.1:{toy.grpc_port}") as made:
        yield made


class Stream:
    """One gRPC stream; ``next`` gives one response's outputs, None after the last."""

    def __init__(self, made: grpcclient.InferenceServerClient, **fields: Any) -> None:
        self._client = made
        self._answers: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
        self.requests = fields.pop("request_id", "")
        self.first = ""
        made.start_stream(lambda result, error: self._answers.put((result, error)))
        made.async_stream_infer(
            "toy", tensors(stream=True, **fields), request_id=self.requests, enable_empty_final_response=True
        )

    def next(self) -> Any:
        result, error = self._answers.get(timeout=60)
        if error is not None:
            raise error
        return result

    def texts(self) -> list[str]:
        """The text of every response up to the final one."""
        texts = []
        while True:
            result = self.next()
            text = result.as_numpy("text_output")
            if text is not None:
                texts.append(text.ravel()[0].decode())
            if result.get_response().parameters["triton_final_response"].bool_param:
                return texts

    def rest(self) -> int:
        """How many ids have come and not been looked at; an end with an error is none."""
        ids = 0
        while not self._answers.empty():
            result, error = self._answers.get()
            found = None if error else result.as_numpy("output_ids")
            ids += 0 if found is None else found.size
        return ids

    def hang_up(self) -> None:
        self._client.stop_stream(cancel_requests=True)

    def close(self) -> None:
        self._client.stop_stream()


def until_idle(http: HttpServer) -> dict[str, Any]:
    """The status once nothing is in flight."""
    for _ in range(750):
        status = http.command("toy", "status")
        if status["active"] == status["queued"] == 0:
            return status
        time.sleep(0.02)
    raise AssertionError(f"still busy: {status}")
