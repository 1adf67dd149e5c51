# SPDX-License-Identifier: BSD-3-Clause
"""Functions as bytes for workers, pickled again only if they may have changed, and the main script they are from."""

import hashlib
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import torch

from isopool import _native
from isopool.worker import payload
from isopool.worker.main_script import Main, is_importable
from isopool.worker.tasks import CONSTANT

def _is_constant(value: Any) -> bool:
    kind = type(value)
    if kind is types.BuiltinFunctionType:
        # The method of an object goes with the object.
        return value.__self__ is None or isinstance(value.__self__, types.ModuleType)
    if kind is types.ModuleType:
        return sys.modules.get(value.__name__) is value  # others go by value
    if kind in CONSTANT:
        return True
    # Such a class goes by name.
    return isinstance(value, type) and is_importable(value)


def program_main() -> Main:
    """The main script of this process; in a worker, that of the program whose call runs."""
    module = sys.modules["__main__"]
    if module.__name__ != "__main__" and module not in _by_value:
        # Of a process that multiprocessing has spawned. cloudpickle takes it for a module that workers can import.
        cloudpickle.register_pickle_by_value(module)
        _by_value.append(module)
    return Main(module)


_by_value: list[types.ModuleType] = []


class PickledFunction:
    """A function's pickle as a uint8 tensor, and the key by which workers know it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        # cloudpickle drops the file's name, which tracebacks show.
        code = getattr(function, "__code__", None)
        pickled = payload.whole_dumps((function, code.co_filename if code is not None else ""), program_main())
        self.key = hashlib.blake2b(pickled, digest_size=16).hexdigest()
        self.tensor: torch.Tensor = _native.tensor_of(pickled)


class PickledFunctions:
    """Keeps the pickles of functions that can't have changed since. Threads that pickle the same one at a time each make it."""

    def __init__(self) -> None:
        self._kept: weakref.WeakKeyDictionary[Any, tuple[list[Any], PickledFunction]] = weakref.WeakKeyDictionary()

    def pickled(self, function: Callable[..., Any]) -> PickledFunction:
        """Raises what the pickling of the function raises."""
        used = _constants_of(function)
        if used is None:
            return PickledFunction(function)
        kept = self._kept.get(function)
        if kept is not None and len(kept[0]) == len(used) and all(a is b for a, b in zip(kept[0], used, strict=True)):
            return kept[1]
        made = PickledFunction(function)
        self._kept[function] = (used, made)
        return made


def _constants_of(function: Any) -> list[Any] | None:
    """What the pickle of the function was made of, if all of it is constant; else None.

    The same objects, compared by identity, make the same pickle.
    """
    if type(function) is types.BuiltinFunctionType:
        return [] if _is_constant(function) else None
    used: list[Any] = []
    return used if type(function) is types.FunctionType and _collect(function, function, used, 0) else None


# Without the root, which is to be collected although this is kept as long as it lives.
def _collect(root: types.FunctionType, function: types.FunctionType, used: list[Any], depth: int) -> bool:
    if depth > 3 or function.__dict__:
        return False
    code = function.__code__
    used.append(code)
    values: list[Any] = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    try:
        values += [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # an empty cell
        return False
    for name in _names(code):
        if name in function.__globals__:
            values.append(function.__globals__[name])
    for value in values:
        if value is root or value is function:
            continue
        if type(value) is types.FunctionType:
            if not _collect(root, value, used, depth + 1):
                return False
        elif not _is_constant(value):
            return False
        used.append(value)
    return True


def _names(code: types.CodeType) -> tuple[str, ...]:
    names = code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names += _names(constant)
    return names
