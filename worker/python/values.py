# SPDX-License-Identifier: BSD-3-Clause
"""The permissive conversion of results, for objects that have no counterpart as a value."""

import collections
import dataclasses
import enum
import sys
from collections.abc import ItemsView, KeysView, Mapping, ValuesView

import torch

# Iterating over these does not consume them, and their elements are their whole content.
_LISTS = (set, frozenset, range, collections.deque, KeysView, ValuesView, ItemsView)


def plain(value: object) -> object:
    """A simpler object in place of `value`. Raises TypeError with the reason if there is none."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, Mapping):
        return dict(value.items())
    if isinstance(value, _LISTS):
        return list(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if isinstance(value, numpy.ndarray):
            return _tensor(numpy, value)
        if isinstance(value, numpy.generic):
            return _number(numpy, value)
    cache = getattr(sys.modules.get("transformers.cache_utils"), "Cache", None)
    if cache is not None and isinstance(value, cache):
        return _cache(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    raise TypeError(_refusal(value))


def _tensor(numpy, array) -> torch.Tensor:  # type: ignore[no-untyped-def]
    if isinstance(array, numpy.ma.MaskedArray):
        raise TypeError("a masked numpy array would lose its mask: call .filled() on it first")
    if array.dtype.kind not in "biufc":
        raise TypeError(f"a numpy array of dtype {array.dtype} can't become a tensor")
    # Copies arrays that torch can't view: read-only, foreign byte order, unusual strides.
    if (
        not array.flags.writeable
        or not array.dtype.isnative
        or any(stride < 0 or stride % array.itemsize for stride in array.strides)
    ):
        array = numpy.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    try:
        return torch.from_numpy(array)
    except TypeError:
        raise TypeError(f"a numpy array of dtype {array.dtype} can't become a tensor") from None


def _number(numpy, scalar) -> object:  # type: ignore[no-untyped-def]
    if isinstance(scalar, numpy.longdouble):
        return float(scalar)
    if isinstance(scalar, numpy.clongdouble):
        return complex(scalar)
    if scalar.dtype.kind not in "biufc":
        raise TypeError(f"a numpy scalar of dtype {scalar.dtype} has no counterpart")
    return scalar.item()


def _cache(cache) -> object:  # type: ignore[no-untyped-def]
    """The content of a cache of transformers: keys and values, layer by layer."""
    if hasattr(cache, "self_attention_cache"):
        return {
            "self_attention": _cache(cache.self_attention_cache),
            "cross_attention": _cache(cache.cross_attention_cache),
        }
    return [(layer.keys, layer.values) for layer in cache.layers]


def _refusal(value: object) -> str:
    kind = type(value)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    if isinstance(value, type):
        return f"it is a class ({value.__qualname__})"
    if isinstance(value, torch.nn.Module):
        return f"it is a module of class {name}: return its state_dict() or what it computes"
    if hasattr(kind, "__next__"):
        return (
            f"it is an iterator of class {name}: take its items one by one by stream(), or return "
            "list() of it"
        )
    if callable(value):
        return f"it is a callable of class {name}: return what it computes"
    return (
        f"it is of class {name}: return tensors, numbers, texts, bytes, None, and lists, tuples, "
        "sets, dicts and dataclasses of them"
    )
