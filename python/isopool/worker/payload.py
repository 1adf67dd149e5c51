# SPDX-License-Identifier: BSD-3-Clause
"""Any Python object as a pickle and tensors, for both sides of a call.

The first part is the object's pickle (protocol 5, cloudpickle: functions and classes of __main__ go by value): a short
one as text, each byte a character, because a call passes text faster than a tensor. The others are tensors of what lies
beside it: the memory of torch tensors, numpy arrays and long bytes, which is not copied here. A tensor of a call lies in
shared memory, so the other side's object is made on that memory.
"""

import ctypes
import functools
import io
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import torch

# A shorter buffer costs less as a part of the pickle than as a tensor of its own.
SHORTEST_BUFFER = 4096

# A longer pickle is a tensor.
LONGEST_TEXT = 2048

Parts = list[str | torch.Tensor]


def stored_tensor(index: int, requires_grad: bool, is_parameter: bool) -> torch.Tensor:
    """Stands in a pickle for a tensor that lies beside it. Never called: see _Unpickler."""
    raise pickle.UnpicklingError("a pickle of isopool can be read by isopool_by_value.payload.loads() only")


class LongBytes:
    """Bytes whose memory lies beside the pickle. The other side makes bytes of them, by one copy."""

    def __init__(self, value: bytes | bytearray) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return type(self.value), (pickle.PickleBuffer(self.value),)


# A pickler or unpickler must be in no cycle of references: what it refers to would live until the next garbage
# collection, and a worker copies an argument that lives after its call.
class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO) -> None:
        buffers: list[memoryview] = []

        def place(buffer: pickle.PickleBuffer) -> bool:
            memory = buffer.raw()
            if memory.nbytes < SHORTEST_BUFFER:
                return True  # a part of the pickle
            buffers.append(memory)
            return False

        super().__init__(file, protocol=5, buffer_callback=place)
        self.buffers = buffers
        self.tensors: list[torch.Tensor] = []

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if (kind is torch.Tensor or kind is torch.nn.Parameter) and _crosses(obj):
            self.tensors.append(obj.detach())
            # Its part: the pickle itself is part 0.
            return stored_tensor, (len(self.tensors), obj.requires_grad, kind is torch.nn.Parameter)
        return super().reducer_override(obj)


def _crosses(tensor: torch.Tensor) -> bool:
    return (
        tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not tensor.is_quantized
        and (tensor.is_leaf or not tensor.requires_grad)
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def _stored_in(parts: Sequence[Any], part: int, requires_grad: bool, is_parameter: bool) -> torch.Tensor:
    tensor: torch.Tensor = parts[part]
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_() if requires_grad else tensor


class _Unpickler(pickle.Unpickler):
    def __init__(self, parts: Sequence[Any]) -> None:
        # The buffers are the last parts, the first buffer last: so neither their number nor that of the tensors has to
        # be known.
        super().__init__(io.BytesIO(_pickle_of(parts[0])), buffers=map(memory_of, reversed(parts)))
        self._parts = parts

    def find_class(self, module: str, name: str) -> Any:
        if name == "stored_tensor" and module in ("isopool.worker.payload", "isopool_by_value.payload"):
            return functools.partial(_stored_in, self._parts)
        return super().find_class(module, name)


# What most small arguments consist of: the plain pickle is the same, and four times as fast.
_PLAIN = frozenset({int, float, bool, type(None), str})


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is tuple:
        return all(map(_is_plain, value))
    return kind is dict and all(type(key) is str and _is_plain(each) for key, each in value.items())


def _with_long_bytes(value: Any) -> Any:
    """The value, with long bytes in it, its items and theirs as LongBytes. Other containers keep theirs."""
    kind = type(value)
    if (kind is bytes or kind is bytearray) and len(value) >= SHORTEST_BUFFER:
        return LongBytes(value)
    if kind is tuple and any(type(each) in (bytes, bytearray, tuple, dict) for each in value):
        return tuple(map(_with_long_bytes, value))
    if kind is dict and any(type(each) in (bytes, bytearray, tuple) for each in value.values()):
        return {key: _with_long_bytes(each) for key, each in value.items()}
    return value


def _part_of(pickled: Any, tensor_of: Callable[[Any], torch.Tensor]) -> str | torch.Tensor:
    return str(pickled, "latin-1") if len(pickled) <= LONGEST_TEXT else tensor_of(pickled)


def _pickle_of(part: str | torch.Tensor) -> Any:
    return part.encode("latin-1") if isinstance(part, str) else memory_of(part)


def dumps(value: Any, tensor_of: Callable[[Any], torch.Tensor]) -> Parts:
    """The parts of an object, which refer to the memory of its arrays. Raises what its pickling raises.

    tensor_of makes a tensor of a buffer, without a copy.
    """
    if _is_plain(value):
        return [_part_of(pickle.dumps(value, 5), tensor_of)]
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(_with_long_bytes(value))
    return [_part_of(file.getbuffer(), tensor_of), *pickler.tensors, *map(tensor_of, reversed(pickler.buffers))]


def memory_of(tensor: torch.Tensor) -> Any:
    """The memory of a uint8 tensor of one dimension as a buffer, which keeps the tensor."""
    memory: Any = (ctypes.c_ubyte * tensor.numel()).from_address(tensor.data_ptr())
    memory.tensor = tensor
    return memory


def loads(parts: Sequence[str | torch.Tensor]) -> Any:
    """The object of these parts, made on their memory. Raises what its unpickling raises."""
    if len(parts) == 1:
        return pickle.loads(_pickle_of(parts[0]))
    return _Unpickler(parts).load()


def owned(parts: Sequence[str | torch.Tensor]) -> Parts:
    """The parts with memory of their own, to be kept after the call that they came with."""
    return [part if isinstance(part, str) else part.clone() for part in parts]
