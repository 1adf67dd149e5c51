# SPDX-License-Identifier: BSD-3-Clause
"""Any Python object as a pickle and tensors, for both sides of a call.

The first part is the object's pickle (protocol 5, cloudpickle: functions and classes of __main__ go by value, or as
main_script.py says): a short one as text, each byte a character, because a call passes text faster than a tensor. The others are tensors of what lies
beside it: the memory of torch tensors, numpy arrays and long bytes, which is not copied here. A tensor of a call lies in
shared memory, so the other side's object is made on that memory.
"""

import collections
import ctypes
import functools
import io
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import torch

from . import class_ids, main_script, mapped_files
from .main_script import Definer, Digests, Main, Reducer

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
    def __init__(self, file: io.BytesIO, reducer: Reducer | None) -> None:
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
        self._reducer = reducer

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if (kind is torch.Tensor or kind is torch.nn.Parameter) and _crosses(obj):
            self.tensors.append(obj.detach())
            # Its part: the pickle itself is part 0.
            return stored_tensor, (len(self.tensors), obj.requires_grad, kind is torch.nn.Parameter)
        if kind.__name__ == "memmap" and kind.__module__ == "numpy" and (found := mapped_files.reduced(obj)):
            return found
        if self._reducer is None:
            return class_ids.sent(obj, super().reducer_override(obj))
        return class_ids.sent(obj, self._reducer.reduced(obj, super().reducer_override))


class _WholePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Makes a pickle with nothing beside it."""

    def __init__(self, file: io.BytesIO, reducer: Reducer) -> None:
        super().__init__(file, protocol=5)
        self._reducer = reducer

    def persistent_id(self, obj: Any) -> str | None:
        return self._reducer.global_of(obj)

    def reducer_override(self, obj: Any) -> Any:
        return class_ids.sent(obj, self._reducer.reduced(obj, super().reducer_override))


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


# The name of the package of this module in the program, and in a worker.
_PACKAGES = ("isopool.worker", "isopool_by_value")


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, parts: Sequence[Any], main: Main | None) -> None:
        # The buffers are the last parts, the first buffer last: so neither their number nor that of the tensors has to
        # be known.
        super().__init__(file, buffers=map(memory_of, reversed(parts)))
        self._parts = parts
        self._main = main

    def find_class(self, module: str, name: str) -> Any:
        package, _, last = module.rpartition(".")
        if package in _PACKAGES:
            if name == "stored_tensor" and last == "payload":
                return functools.partial(_stored_in, self._parts)
            if last == "main_script" and self._main is not None:
                return self._main.member(name)
            # It has another name on the other side.
            module = f"{__package__}.{last}"
        if module == "cloudpickle.cloudpickle" and name in class_ids.READERS:
            return class_ids.READERS[name]
        return super().find_class(module, name)

    def persistent_load(self, pid: Any) -> Any:
        if self._main is None:
            raise pickle.UnpicklingError("a pickle refers to the main script")
        return self._main.attribute(pid)


def _read(pickled: Any, parts: Sequence[Any], main: Main | None) -> tuple[Any, Digests]:
    """The object, and the digests of the globals of the main script that came before it."""
    file = io.BytesIO(pickled)
    value = _Unpickler(file, parts, main).load()
    if type(value) is not Digests:
        return value, Digests()
    return _Unpickler(file, parts, main).load(), value


# What most small arguments consist of: the plain pickle is the same, and four times as fast.
_PLAIN = frozenset({int, float, bool, type(None), str})


def _is_plain(value: Any, depth: int = 0) -> bool:
    kind = type(value)
    if kind in _PLAIN:
        return True
    if depth > 10:
        return False  # it may contain itself
    if kind is tuple:
        for each in value:
            if not _is_plain(each, depth + 1):
                return False
        return True
    return kind is dict and all(type(key) is str and _is_plain(each, depth + 1) for key, each in value.items())


# Parts that refer to nothing that may be a part of the value, too.
_LEAVES = _PLAIN | {bytes, bytearray, complex, torch.Tensor}

# Of a larger value the long bytes stay in its pickle.
_MOST_PARTS = 256


def _with_long_bytes(value: Any) -> Any:
    """The value with LongBytes in place of its long bytes, if it consists of tuples, dicts and leaves only.

    Only then the copies of its containers are known to be all that refer to them: what the value has twice, it has
    twice afterwards.
    """
    return _copied(value, {}) if _parts_of(value, 0) <= _MOST_PARTS else value


def _call_with_long_bytes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same of a call's arguments. Nothing else refers to the two containers, and bytes can't change."""
    value = (args, kwargs)
    if _parts_of(value, 0) <= _MOST_PARTS:
        copied: tuple[tuple[Any, ...], dict[str, Any]] = _copied(value, {})
        return copied

    def long(each: Any) -> Any:
        return LongBytes(each) if type(each) is bytes and len(each) >= SHORTEST_BUFFER else each

    return tuple(map(long, args)), {name: long(each) for name, each in kwargs.items()}


def _parts_of(value: Any, known: int) -> int:
    """How many parts it has beside `known` ones; too many if one of them is no leaf."""
    kind = type(value)
    if known > _MOST_PARTS:
        return known
    if kind in _LEAVES or kind.__name__ == "ndarray" and kind.__module__ == "numpy" and not value.dtype.hasobject:
        return known + 1
    if kind is tuple:
        for each in value:
            known = _parts_of(each, known + 1)
        return known
    if kind is dict:
        for name, each in value.items():
            known = _parts_of(each, known + 1) if type(name) in _PLAIN else _MOST_PARTS + 1
        return known
    return _MOST_PARTS + 1


def _copied(value: Any, copies: dict[int, Any]) -> Any:
    kind = type(value)
    known = copies.get(id(value))
    if known is not None:
        return known
    made: Any = value
    if kind is tuple:
        made = tuple(_copied(each, copies) for each in value)
    elif kind is dict:
        made = {key: _copied(each, copies) for key, each in value.items()}
    elif (kind is bytes or kind is bytearray) and len(value) >= SHORTEST_BUFFER:
        made = LongBytes(value)
    copies[id(value)] = made
    return made


def _part_of(pickled: Any, tensor_of: Callable[[Any], torch.Tensor]) -> str | torch.Tensor:
    return str(pickled, "latin-1") if len(pickled) <= LONGEST_TEXT else tensor_of(pickled)


def _pickle_of(part: str | torch.Tensor) -> Any:
    return part.encode("latin-1") if isinstance(part, str) else memory_of(part)


def call_dumps(
    args: tuple[Any, ...], kwargs: dict[str, Any], tensor_of: Callable[[Any], torch.Tensor], main: Main
) -> Parts:
    """dumps() of (args, kwargs), to which nothing else refers."""
    if _is_plain(args) and _is_plain(kwargs):
        return [_part_of(pickle.dumps((args, kwargs), 5), tensor_of)]
    return _dumps(_call_with_long_bytes(args, kwargs), tensor_of, main, read_once=True)


def dumps(
    value: Any, tensor_of: Callable[[Any], torch.Tensor], main: Main | None = None, read_once: bool = False
) -> Parts:
    """The parts of an object, which refer to the memory of its arrays. Raises what its pickling raises.

    tensor_of makes a tensor of a buffer, without a copy. main: the main script, whose functions and classes go by their
    names; of the program's, the globals that they use come before the object. read_once: see Reducer.
    """
    if _is_plain(value):
        return [_part_of(pickle.dumps(value, 5), tensor_of)]
    return _dumps(_with_long_bytes(value), tensor_of, main, read_once)


def _dumps(value: Any, tensor_of: Callable[[Any], torch.Tensor], main: Main | None, read_once: bool) -> Parts:
    file = io.BytesIO()
    definer = Definer(main, _whole) if main is not None else None
    reducer = definer.reducer(read_once) if definer is not None else None
    pickler = _Pickler(file, reducer)
    pickler.dump(value)
    pickled: Any = file.getbuffer()
    if definer is not None and reducer is not None and (before := _before(definer, reducer)):
        pickled = before + pickled
    return [_part_of(pickled, tensor_of), *pickler.tensors, *map(tensor_of, reversed(pickler.buffers))]


def _before(definer: Definer, reducer: Reducer) -> bytes:
    """The pickle of the program's globals that another pickle needs; empty if it needs none."""
    found = definer.definitions(reducer)
    return pickle.dumps(found, 5) if found.definitions else b""


def _whole(value: Any, reducer: Reducer) -> bytes:
    file = io.BytesIO()
    _WholePickler(file, reducer).dump(value)
    return file.getvalue()


def whole_dumps(value: Any, main: Main) -> bytes:
    """One pickle of the object, for whole_loads(). Raises what its pickling raises.

    An object that is a global of the main script goes by value: of a method, each call gets an object of its own.
    """
    definer = Definer(main, _whole)
    reducer = Reducer(main)
    pickled = _whole(value, reducer)
    return _before(definer, reducer) + pickled


def whole_loads(pickled: Any, main: Main) -> tuple[Any, Digests]:
    """The object, and the digests of the globals of the main script that came before it.

    Raises what its unpickling raises.
    """
    return _read(pickled, (), main)


def read_global(pickled: bytes, main: Main) -> Any:
    """The value of a global of the main script, for a Namespace."""
    return _read(pickled, (), main)[0]


def memory_of(tensor: torch.Tensor) -> Any:
    """The memory of a uint8 tensor of one dimension as a buffer, which keeps the tensor."""
    memory: Any = (ctypes.c_ubyte * tensor.numel()).from_address(tensor.data_ptr())
    memory.tensor = tensor
    return memory


def loads(parts: Sequence[str | torch.Tensor], main: Main | None = None) -> Any:
    """The object of these parts, made on their memory. Raises what its unpickling raises.

    main: as that of dumps(), in the process that reads.
    """
    first = parts[0]
    if len(parts) == 1 and isinstance(first, str) and "main_script" not in first and "_make_skeleton_" not in first:
        return pickle.loads(_pickle_of(first))
    return _read(_pickle_of(first), parts, main)[0]


def owned(parts: Sequence[str | torch.Tensor]) -> Parts:
    """The parts with memory of their own, to be kept after the call that they came with.

    Tensors that share memory, as one and its view, share their copy.
    """
    uses = collections.Counter(each.untyped_storage().data_ptr() for each in parts if isinstance(each, torch.Tensor))
    copies: dict[int, torch.UntypedStorage] = {}

    def copied(part: torch.Tensor) -> torch.Tensor:
        storage = part.untyped_storage()
        place = storage.data_ptr()
        if uses[place] == 1 or place == 0:
            return part.clone()
        if place not in copies:
            copies[place] = storage.clone()  # type: ignore[no-untyped-call]
        made: torch.Tensor = part.new_empty(0).set_(copies[place], part.storage_offset(), part.shape, part.stride())
        return made

    return [part if isinstance(part, str) else copied(part) for part in parts]
