# SPDX-License-Identifier: BSD-3-Clause
"""Models that are Python objects of this program or of a file, and calls of a model for many items."""

import collections
import functools
import importlib.resources
import itertools
import os
import queue
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from isopool import _native


@functools.cache
def worker_modules() -> dict[str, str]:
    """The modules that workers get as text, by the names that they have there."""
    folder = importlib.resources.files("isopool.worker")
    modules = ("class_ids", "log_settings", "main_script", "mapped_files", "payload", "tasks", "models")
    names = {"isopool_by_value": "__init__", **{f"isopool_by_value.{name}": name for name in modules}}
    return {module: folder.joinpath(f"{name}.py").read_text(encoding="utf-8") for module, name in names.items()}


def by_value(source: Any) -> tuple[str, tuple[Any, ...]] | None:
    """How workers make the model: a function of isopool_by_value.models and its arguments. None for a file's path.

    Raises what the pickling of a callable raises.
    """
    if not isinstance(source, str | os.PathLike):
        if not callable(source):
            raise TypeError(
                f"a model is the path of a file, 'app.py:factory', or a callable, not {type(source).__qualname__}"
            )
        from isopool.worker import payload  # needs cloudpickle, which models of files do not

        return "Model", (name_of(source), *payload.dumps(source, _native.tensor_of))
    path, colon, name = os.fsdecode(source).rpartition(":")
    if not colon or not path.endswith(".py"):
        return None
    if not name.isidentifier():
        raise ValueError(f"{source}: what follows the colon is the name of a function or a class in {path}")
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path}: there is no such file")
    # A worker that is replaced later has the same model, whatever has become of the file.
    with open(path, "rb") as file:
        return "FromFile", (os.path.abspath(path), name, file.read().decode("latin-1"))


def name_of(source: Callable[..., Any]) -> str:
    """The name of a model that is an object of the program: that of a function or class, else that of its type."""
    named = source if isinstance(source, type | types.FunctionType | types.BuiltinFunctionType) else type(source)
    name = f"{named.__module__}:{named.__qualname__}" if named.__module__ else named.__qualname__
    return name.encode("utf-8", "backslashreplace").decode()


def map_model(model: _native.Model, items: Iterable[Any], lookahead: int | None, ordered: bool) -> Iterator[Any]:
    most = 3 * model.workers if lookahead is None else lookahead
    if most < 1:
        raise ValueError("lookahead must be at least 1")
    return _map_ordered(model, iter(items), most) if ordered else _map_completed(model, iter(items), most)


_Outcome = tuple[Any, BaseException | None]


def _result(outcome: _Outcome) -> Any:
    value, error = outcome
    if error is not None:
        raise error
    return value


def _begin(model: _native.Model, item: Any) -> tuple[_native.PendingCall, "queue.SimpleQueue[_Outcome]"]:
    outcome: queue.SimpleQueue[_Outcome] = queue.SimpleQueue()
    return model.call_async((item,), {}, lambda value, error: outcome.put((value, error))), outcome


def _map_ordered(model: _native.Model, items: Iterator[Any], most: int) -> Iterator[Any]:
    begun = collections.deque(_begin(model, item) for item in itertools.islice(items, most))
    try:
        while begun:
            yield _result(begun[0][1].get())
            begun.popleft()
            begun.extend(_begin(model, item) for item in itertools.islice(items, 1))
    finally:
        for pending, _ in reversed(begun):
            pending.stop()


def _map_completed(model: _native.Model, items: Iterator[Any], most: int) -> Iterator[tuple[int, Any]]:
    ended: queue.SimpleQueue[tuple[int, _Outcome]] = queue.SimpleQueue()
    begun: dict[int, _native.PendingCall] = {}
    numbered = enumerate(items)

    def begin(count: int) -> None:
        for number, item in itertools.islice(numbered, count):

            def end(value: Any, error: BaseException | None, number: int = number) -> None:
                ended.put((number, (value, error)))

            begun[number] = model.call_async((item,), {}, end)

    begin(most)
    try:
        while begun:
            number, outcome = ended.get()
            del begun[number]
            yield number, _result(outcome)
            begin(1)
    finally:
        for pending in reversed(begun.values()):
            pending.stop()
