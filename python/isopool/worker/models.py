# SPDX-License-Identifier: BSD-3-Clause
"""Models that are Python objects: made of a payload, or by a function or class of a file."""

import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any

import _isopool  # type: ignore[import-not-found]  # of the workers
import torch

from . import payload


class _ByValue:
    """Calls and attributes are those of the object that it holds."""

    _callable: Callable[..., Any]
    isopool_model_name: str  # in logs and statistics: worker/python/moving.py reads it

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._callable(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_callable":
            raise AttributeError(name)
        return getattr(self._callable, name)


# No method of the class, which would hide one of the model's.
def _set_name(model: _ByValue, name: str) -> None:
    """Call it before code of the model runs."""
    model.isopool_model_name = name
    _isopool.make_model(name)


class Model(_ByValue):
    """A callable of the program, by value. Its pickle is the payload, whose tensors all workers share."""

    def __init__(self, name: str, *parts: str | torch.Tensor) -> None:
        self.__setstate__((name, payload.owned(parts)))

    def __getstate__(self) -> tuple[str, payload.Parts]:
        return self.isopool_model_name, self._parts

    def __setstate__(self, state: tuple[str, payload.Parts]) -> None:
        name, parts = state
        _set_name(self, name)
        self._parts = parts
        self._callable = payload.loads(parts)


class FromFile(_ByValue):
    """What a function or a class of a Python file returns. Each worker makes it, once."""

    def __init__(self, path: str, name: str) -> None:
        self.__setstate__((path, name))

    def __getstate__(self) -> tuple[str, str]:
        return self._place

    def __setstate__(self, place: tuple[str, str]) -> None:
        self._place = place
        path, name = place
        _set_name(self, f"{os.path.basename(path)}:{name}")
        module = _module(path)
        if not hasattr(module, name):
            raise AttributeError(f"{path} has no function or class {name}")
        self._callable = getattr(module, name)()
        if not callable(self._callable):
            kind = type(self._callable).__qualname__
            raise TypeError(f"{path}:{name} returned an object of type {kind}, which can't be called")


def _module(path: str) -> Any:
    name = os.path.splitext(os.path.basename(path))[0]
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == path:
        return known
    # As for a program that is started there: modules beside it are found.
    folder = os.path.dirname(path)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} can't be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
