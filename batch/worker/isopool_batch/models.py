# SPDX-License-Identifier: BSD-3-Clause
"""Functions, classes and objects of user code."""

import hashlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from isopool_batch import packages
from isopool_batch.job import Callee
from isopool_batch.sources import opened


def load(callee: Callee) -> Any:
    """The object itself: not called, a class not instantiated. Raises what its file or pickle raises."""
    if callee.name:
        return _attribute(module_of(callee.path), callee)
    # The pickle may import cloudpickle: without the package the error says how to install it.
    cloudpickle = packages.need("cloudpickle", "a pickled function")
    with opened(callee.path) as file:
        return cloudpickle.load(file)


def make(callee: Callee) -> Callable[..., Any]:
    """The function; of a class, an instance that can be called."""
    made = load(callee)
    if isinstance(made, type):
        made = made()
    if not callable(made):
        raise TypeError(f"{callee} is of class {type(made).__qualname__}, which can't be called")
    return made  # type: ignore[no-any-return]


def module_of(path: str) -> ModuleType:
    """The module of a Python file, imported once per process. Modules beside it can be imported."""
    path = os.path.realpath(path)
    name = os.path.splitext(os.path.basename(path))[0]
    folder = os.path.dirname(path)
    for known_name in (name, _own_name(name, path)):
        known = sys.modules.get(known_name)
        if known is not None and os.path.realpath(getattr(known, "__file__", None) or "") == path:
            return known
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if name in sys.modules:
        # Another module has the name: its users must not get this file in its place.
        name = _own_name(name, path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _own_name(name: str, path: str) -> str:
    return f"{name}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"


def _attribute(module: ModuleType, callee: Callee) -> Any:
    found: Any = module
    for part in callee.name.split("."):
        # "Model.predict" is a method, which needs an instance.
        if isinstance(found, type) and inspect.isfunction(inspect.getattr_static(found, part, None)):
            found = found()
        try:
            found = getattr(found, part)
        except AttributeError:
            raise AttributeError(f"{callee.path} has no function or class {callee.name}") from None
    return found
