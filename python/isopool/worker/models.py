# SPDX-License-Identifier: BSD-3-Clause
"""Models that are Python objects: made of a payload, or by a function or class of a file."""

import importlib.util
import linecache
import os
import sys
import types
import weakref
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
        if name in ("_callable", "_module"):
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
    """What a function or a class of a Python file returns. Each worker makes it, once.

    text: the file's bytes when the program loaded the model, each a character. The file may be another one since.
    """

    def __init__(self, path: str, name: str, text: str) -> None:
        self.__setstate__((path, name, text))

    def __getstate__(self) -> tuple[str, str, str]:
        return self._place

    def __setstate__(self, place: tuple[str, str, str]) -> None:
        self._place = place
        path, name, text = place
        _set_name(self, f"{os.path.basename(path)}:{name}")
        self._module = _module(path, text)
        if not hasattr(self._module, name):
            raise AttributeError(f"{path} has no function or class {name}")
        self._callable = getattr(self._module, name)()
        if not callable(self._callable):
            kind = type(self._callable).__qualname__
            raise TypeError(f"{path}:{name} returned an object of type {kind}, which can't be called")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._be_imported()
        return self._callable(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name not in ("_callable", "_module"):
            self._be_imported()
        return super().__getattr__(name)

    # Other programs may have loaded another version of the file, or another file of this name, since.
    def _be_imported(self) -> None:
        sys.modules[self._module.__name__] = self._module


# By path and text. A model that is loaded again, or by another program, has the same one.
_versions: weakref.WeakValueDictionary[tuple[str, str], types.ModuleType] = weakref.WeakValueDictionary()


def _module(path: str, text: str) -> types.ModuleType:
    known = _versions.get((path, text))
    name = os.path.splitext(os.path.basename(path))[0]
    if known is not None:
        sys.modules[name] = known
        return known
    # As for a program that is started there: modules beside it are found.
    folder = os.path.dirname(path)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise ImportError(f"{path} can't be imported")
    module = importlib.util.module_from_spec(spec)
    contents = text.encode("latin-1")
    # Tracebacks show the lines that run.
    lines = importlib.util.decode_source(contents).splitlines(keepends=True)
    linecache.cache[path] = (len(contents), None, lines, path)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        exec(compile(contents, path, "exec", dont_inherit=True), module.__dict__)
    except BaseException:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise
    _versions[path, text] = module
    return module
