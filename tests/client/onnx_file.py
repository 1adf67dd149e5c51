# SPDX-License-Identifier: BSD-3-Clause
"""Writes ONNX models, so that a test needs no exporter. The numbers are those of onnx.proto."""

import ctypes

import torch

_TYPES = {torch.float32: 1, torch.int64: 7}
_EXTERNAL = 1


def model(
    nodes: list[bytes], inputs: list[bytes], outputs: list[bytes], weights: list[bytes] = []
) -> bytes:
    graph = _message(
        *((1, each) for each in nodes),
        (2, "graph"),
        *((5, each) for each in weights),
        *((11, each) for each in inputs),
        *((12, each) for each in outputs),
    )
    ir_version, opset = 8, 17
    return _message((1, ir_version), (7, graph), (8, _message((2, opset))))


def node(operator: str, inputs: list[str], outputs: list[str]) -> bytes:
    return _message(*((1, each) for each in inputs), *((2, each) for each in outputs), (4, operator))


def value(name: str, shape: list[int | str], dtype: torch.dtype = torch.float32) -> bytes:
    """An input or an output. A text is the name of a dimension that is known only at a call."""
    dimensions = [_message((1 if isinstance(each, int) else 2, each)) for each in shape]
    tensor = _message((1, _TYPES[dtype]), (2, _message(*((1, each) for each in dimensions))))
    return _message((1, name), (2, _message((1, tensor))))


def weight(name: str, tensor: torch.Tensor) -> bytes:
    tensor = tensor.contiguous()
    return _message(*_head(name, tensor), (9, ctypes.string_at(tensor.data_ptr(), tensor.nbytes)))


def external_weight(name: str, tensor: torch.Tensor, file: str) -> bytes:
    """One whose bytes lie in another file."""
    location = _message((1, "location"), (2, file))
    return _message(*_head(name, tensor), (13, location), (14, _EXTERNAL))


def _head(name: str, tensor: torch.Tensor) -> list[tuple[int, int | str]]:
    return [*((1, size) for size in tensor.shape), (2, _TYPES[tensor.dtype]), (8, name)]


def _message(*fields: tuple[int, int | str | bytes]) -> bytes:
    return b"".join(_field(number, content) for number, content in fields)


def _field(number: int, content: int | str | bytes) -> bytes:
    if isinstance(content, int):
        return _varint(number << 3) + _varint(content)
    if isinstance(content, str):
        content = content.encode()
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    head = b""
    while number > 127:
        head += bytes([number & 127 | 128])
        number >>= 7
    return head + bytes([number])
