"""config.pbtxt, written from Triton's own protobuf message so that it always parses."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from trtspec.repository.interface import Tensor


def config_pbtxt(
    name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], *, decoupled: bool, max_batch_size: int
) -> str:
    """One instance on the CPU of Triton's Python backend. ``max_batch_size`` 0: tensors carry no batch dimension."""
    config = model_config_pb2.ModelConfig(name=name, backend="python", max_batch_size=max_batch_size)
    config.model_transaction_policy.decoupled = decoupled
    for tensor in inputs:
        config.input.add(
            name=tensor.name,
            data_type=_type_number(tensor),
            dims=tensor.dims,
            optional=tensor.optional,
        )
    for tensor in outputs:
        config.output.add(name=tensor.name, data_type=_type_number(tensor), dims=tensor.dims)
    config.instance_group.add(kind=model_config_pb2.ModelInstanceGroup.KIND_CPU, count=1)
    text: str = text_format.MessageToString(config)
    return text


def _type_number(tensor: Tensor) -> int:
    number: int = model_config_pb2.DataType.Value(f"TYPE_{tensor.type}")
    return number
