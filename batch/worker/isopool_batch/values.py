# SPDX-License-Identifier: BSD-3-Clause
"""Results as values that a part file can have: None, booleans, numbers, strings, bytes, times, arrays, lists, dicts."""

import dataclasses
import datetime
import decimal
import enum
import math
import os
import sys
import uuid
from collections.abc import Callable, Mapping
from typing import Any

_AS_THEY_ARE = frozenset({type(None), bool, float, bytes, decimal.Decimal})
_NUMBERS = frozenset({type(None), bool, float})
_TIMES = frozenset({datetime.datetime, datetime.date, datetime.time, datetime.timedelta})

_LEAST_INTEGER, _GREATEST_INTEGER = -(2**63), 2**63 - 1

Conversion = Callable[[Any], Any]


def storable(value: Any) -> Any:
    """A value for a part file in place of `value`, which stays as it is. Tensors become numpy arrays on the CPU.

    Raises TypeError or ValueError with the reason if there is none. An array is a copy: a model may return the same
    memory at each call.
    """
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is str:
        return _text(value)
    if kind is int:
        return _integer(value)
    if kind is dict:
        return _dict(value)
    if kind is list or kind is tuple:
        return _list(value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return array_of_tensor(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if isinstance(value, numpy.ndarray):
            return _array(numpy, value)
        if isinstance(value, numpy.generic):
            return _array(numpy, numpy.asarray(value))
    return _other(value)


def array_of_tensor(tensor: Any) -> Any:
    """The tensor as a numpy array, or as a number if it has no dimensions."""
    tensor = tensor.detach()
    if not tensor.is_cpu:
        tensor = tensor.cpu()
    if tensor.dim() == 0:
        return storable(tensor.item())
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if str(tensor.layout) != "torch.strided":
        tensor = tensor.to_dense()
    if str(tensor.dtype) in _WITHOUT_NUMPY:
        tensor = tensor.float()
    array = tensor.resolve_conj().resolve_neg().numpy()
    return _array(sys.modules["numpy"], array)


# Types of small floats that numpy lacks: each of their values is a float32.
_WITHOUT_NUMPY = frozenset(
    {"torch.bfloat16", "torch.float8_e4m3fn", "torch.float8_e5m2", "torch.float8_e4m3fnuz", "torch.float8_e5m2fnuz"}
)


def _text(value: str) -> str:
    if not value.isascii():
        value.encode()  # raises UnicodeEncodeError for lone surrogates, which no file can have
    return value


def _integer(value: int) -> int:
    if not _LEAST_INTEGER <= value <= _GREATEST_INTEGER:
        raise ValueError(f"the integer {_short(value)} does not fit into 64 bits with a sign: return it as a string")
    return value


def _short(value: int) -> str:
    # str() refuses integers of thousands of digits.
    return str(value) if value.bit_length() < 100 else f"of {int(value.bit_length() * math.log10(2)) + 1} digits"


def _dict(value: Mapping[Any, Any]) -> dict[str, Any]:
    made = {_text(key) if type(key) is str else _key(key): storable(each) for key, each in value.items()}
    if len(made) != len(value):
        raise ValueError("two keys of a dict have the same text")
    return made


def _key(key: Any) -> str:
    if isinstance(key, enum.Enum):
        key = key.value
    if isinstance(key, (str, int, float, bool)) or key is None:
        return _text(str(key))
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(key, numpy.generic):
        return str(key.item())
    raise TypeError(f"a key of a dict is of class {type(key).__qualname__}: strings are needed")


def _list(value: Any) -> list[Any]:
    kinds = set(map(type, value))
    if kinds <= _NUMBERS:
        return list(value)
    if kinds == {int}:
        _integer(min(value))
        _integer(max(value))
        return list(value)
    return [storable(each) for each in value]


def _array(numpy: Any, array: Any) -> Any:
    """The array in the byte order of this machine; lists for elements that are Python objects."""
    kind = array.dtype.kind
    if isinstance(array, numpy.ma.MaskedArray):
        raise TypeError("a masked array would lose its mask: call .filled() on it first")
    if kind in "biuf":
        if array.ndim == 0:
            return storable(array.item() if array.dtype.itemsize <= 8 else float(array))
        wide = kind == "f" and array.dtype.itemsize > 8
        return numpy.array(array, dtype=numpy.float64 if wide else array.dtype.newbyteorder("="), order="C")
    if kind in "mM":
        # Microseconds are the resolution of Python's times.
        coarse = array.astype(f"{kind}8[us]")
        if ((coarse.astype(array.dtype) != array) & ~numpy.isnat(array)).any():
            raise ValueError(_TOO_FINE)
        return storable(coarse.tolist())
    if kind in "OUS":
        return storable(array.tolist())
    raise TypeError(f"an array of dtype {array.dtype} can't be stored: return its parts as arrays of real numbers")


def _other(value: Any) -> Any:
    kind = type(value)
    if kind in _TIMES:
        return value
    if isinstance(value, enum.Enum):
        return storable(value.value)
    if isinstance(value, Mapping):
        return _dict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: storable(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (uuid.UUID, os.PathLike)):
        return _text(str(value))
    if isinstance(value, range):
        return _list(list(value))
    return _of_base_class(value)


_TOO_FINE = "a time has nanoseconds, which would be cut off: return it as an integer or as a text"


def _of_base_class(value: Any) -> Any:
    """Objects of derived classes, as pandas and str subclasses of tokenizers, without the class."""
    if type(value).__name__ == "NaTType":  # of pandas
        return None
    if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):  # of pandas
        raise ValueError(_TOO_FINE)
    if isinstance(value, datetime.datetime):
        return datetime.datetime.combine(value.date(), value.timetz())
    if isinstance(value, datetime.timedelta):
        return datetime.timedelta(value.days, value.seconds, value.microseconds)
    if isinstance(value, int):
        return _integer(int(value))
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return _text(str.__str__(value))
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, (list, tuple)):
        return _list(list(value))
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    raise TypeError(
        f"an object of class {name} can't be stored: return numbers, strings, bytes, None, times, arrays, tensors, "
        "and lists, dicts and dataclasses of them"
    )
