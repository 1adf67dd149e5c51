# SPDX-License-Identifier: BSD-3-Clause
"""Types of columns: of a value, of several values together, and as Arrow's.

A type is a tuple, which JSON can carry:

    ("null",)  ("bool",)  ("text",)  ("bytes",)  ("date",)  ("time",)  ("duration",)
    ("number", a dtype's name, or "int" for integers that a float64 has exactly)
    ("decimal", digits before the point, digits behind it)
    ("timestamp", whether it has a zone)
    ("list", type of the elements)
    ("array", length, type of the elements): each has this length
    ("dict", ((key, type of its values), ...))
"""

import datetime
import decimal
import json
from collections import Counter
from collections.abc import Iterable
from functools import reduce
from typing import Any

from isopool_batch import packages

Type = tuple[Any, ...]

NULL: Type = ("null",)
BOOL: Type = ("bool",)
TEXT: Type = ("text",)
EMPTY: Type = ("dict", ())
_EXACT: Type = ("number", "int")
_WIDE: Type = ("number", "int64")
_FLOAT: Type = ("number", "float64")

_PLAIN: dict[type, Type] = {
    type(None): NULL,
    bool: BOOL,
    float: _FLOAT,
    str: TEXT,
    bytes: ("bytes",),
    datetime.date: ("date",),
    datetime.timedelta: ("duration",),
}

# Bits of an integer that a float has exactly.
_MANTISSA = {"float16": 11, "float32": 24, "float64": 53}

_MOST_DIGITS = 76  # of a decimal in Arrow


class Apart(ValueError):
    """Types that no column can have together."""


def of(value: Any) -> Type:
    """The type of a value of values.storable(). Raises ValueError if no column can have the value."""
    plain = _PLAIN.get(type(value))
    if plain is not None:
        return plain
    match value:
        case int():
            return _EXACT if abs(value) <= 2**53 else _WIDE
        case datetime.datetime():
            return ("timestamp", value.utcoffset() is not None)
        case datetime.time():
            if value.tzinfo is not None:
                raise ValueError("a time of day with a zone, which would be lost")
            return ("time",)
        case decimal.Decimal():
            return _of_decimal(value)
        case list():
            return ("list", together(map(of, value)))
        case dict():
            return ("dict", tuple((key, of(each)) for key, each in value.items()))
        case _:
            return _of_array(value)


def together(types: Iterable[Type]) -> Type:
    """The type that values of all these types can have unchanged. Raises Apart if there is none."""
    return reduce(_both, dict.fromkeys(types), NULL)


def usual(counts: Counter[Type]) -> Type:
    """The type of most values: beginning with the most frequent type, each that goes together with those before."""
    found = NULL
    for each, _ in sorted(counts.items(), key=lambda item: -item[1]):  # stable: of equal ones the first
        try:
            found = _both(found, each)
        except Apart:
            continue
    return found


def arrow(type: Type) -> Any:
    """The data type of pyarrow. Of a dict without keys it is null: Parquet has no type for it."""
    pyarrow = packages.pyarrow()
    match type:
        case ("number", name):
            return pyarrow.int64() if name == "int" else pyarrow.from_numpy_dtype(name)
        case ("decimal", whole, fraction):
            digits = max(whole + fraction, 1)
            return pyarrow.decimal128(digits, fraction) if digits <= 38 else pyarrow.decimal256(digits, fraction)
        case ("timestamp", zoned):
            return pyarrow.timestamp("us", tz="UTC" if zoned else None)
        case ("list", element):
            return pyarrow.list_(arrow(element))
        case ("array", length, element):
            return pyarrow.list_(arrow(element), length)
        case ("dict", fields) if fields:
            return pyarrow.struct([(name, arrow(each)) for name, each in fields])
    simple = {
        "bool": pyarrow.bool_,
        "text": pyarrow.string,
        "bytes": pyarrow.binary,
        "date": pyarrow.date32,
        "time": lambda: pyarrow.time64("us"),
        "duration": lambda: pyarrow.duration("us"),
    }
    return simple.get(type[0], pyarrow.null)()


def of_arrow(given: Any) -> Type:
    """The type for a data type of pyarrow; whether offsets are wide does not count. Raises ValueError."""
    types = packages.pyarrow().types
    if types.is_fixed_size_list(given):
        return ("array", given.list_size, of_arrow(given.value_type))
    if types.is_list(given) or types.is_large_list(given):
        return ("list", of_arrow(given.value_type))
    if types.is_struct(given):
        return ("dict", tuple((field.name, of_arrow(field.type)) for field in given))
    if types.is_string(given) or types.is_large_string(given) or types.is_string_view(given):
        return TEXT
    if types.is_binary(given) or types.is_large_binary(given) or types.is_binary_view(given):
        return ("bytes",)
    made = _of_simple(types, given)
    if made is None or arrow(made) != given:
        nearest = f"; the nearest is {in_words(made)}" if made is not None else ""
        raise ValueError(f"no column of results has the type {given}{nearest}")
    return made


def _of_simple(types: Any, given: Any) -> Type | None:
    if types.is_decimal(given):
        return ("decimal", given.precision - given.scale, given.scale)
    if types.is_timestamp(given):
        return ("timestamp", given.tz is not None)
    if types.is_integer(given) or types.is_floating(given):
        return ("number", given.to_pandas_dtype().__name__)
    checks = {
        "null": types.is_null,
        "bool": types.is_boolean,
        "date": types.is_date,
        "time": types.is_time,
        "duration": types.is_duration,
    }
    return next(((name,) for name, check in checks.items() if check(given)), None)


def in_words(type: Type) -> str:
    """As Arrow names it, for messages."""
    return str(arrow(type)).replace("element: ", "")


def parsed(text: str) -> Any:
    """Types within JSON."""
    return _tuples(json.loads(text))


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    if isinstance(value, dict):
        return {key: _tuples(each) for key, each in value.items()}
    return value


def _of_decimal(value: decimal.Decimal) -> Type:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"the decimal {value} is no number")
    whole, fraction = max(len(digits) + exponent, 0), max(-exponent, 0)
    if whole + fraction > _MOST_DIGITS:
        raise ValueError(f"a decimal of more than {_MOST_DIGITS} digits")
    return ("decimal", whole, fraction)


def _of_array(array: Any) -> Type:
    element = BOOL if array.dtype.kind == "b" else ("number", array.dtype.name)
    if array.ndim == 1 and len(array) > 0:
        return ("array", len(array), element)
    for _ in range(array.ndim):
        element = ("list", element)
    return element


def _both(one: Type, other: Type) -> Type:
    if one == other or other == NULL:
        return one
    if one == NULL:
        return other
    match one, other:
        case ("number", first), ("number", second):
            return ("number", _number(first, second))
        case ("decimal", *_), ("decimal", *_):
            whole, fraction = (max(pair) for pair in zip(one[1:], other[1:], strict=True))
            if whole + fraction > _MOST_DIGITS:
                raise Apart(f"decimals of more than {_MOST_DIGITS} digits")
            return ("decimal", whole, fraction)
        case ("list" | "array", *_), ("list" | "array", *_):
            element = _both(one[-1], other[-1])
            return ("array", one[1], element) if one[:2] == other[:2] and one[0] == "array" else ("list", element)
        case ("dict", fields), ("dict", more):
            joined = dict(fields)
            for key, each in more:
                joined[key] = _both(joined.get(key, NULL), each)
            return ("dict", tuple(joined.items()))
    raise Apart(f"{_name(one)} and {_name(other)}")


def _name(type: Type) -> str:
    if type[0] == "timestamp":
        return "times with a zone" if type[1] else "times without a zone"
    return {"dict": "dicts", "list": "lists", "array": "lists"}.get(type[0], in_words(type))


def _number(one: str, other: str) -> str:
    """The dtype that has the values of both exactly."""
    if _is_float(one) or _is_float(other):
        if not (_is_float(one) and _is_float(other)):
            bits = _bits(other if _is_float(one) else one)
            own = one if _is_float(one) else other
            fitting = [name for name in _MANTISSA if _MANTISSA[name] >= max(bits, _MANTISSA[own])]
            if not fitting:
                raise Apart("integers of more than 53 bits and floats")
            return fitting[0]
        return max(one, other, key=_MANTISSA.__getitem__)
    if one.startswith("uint") and other.startswith("uint"):
        return max(one, other, key=_bits)
    bits = max(_bits(one), _bits(other))
    if "int" in (one, other) and bits == _bits("int"):
        return "int"
    for name in ("int8", "int16", "int32", "int64"):
        if _bits(name) >= bits:
            return name
    raise Apart("unsigned integers of 64 bits and signed ones")


def _is_float(name: str) -> bool:
    return name in _MANTISSA


def _bits(name: str) -> int:
    """Of the values of an integer dtype, without the sign."""
    if name == "int":
        return 53
    return int(name.lstrip("uint")) - (0 if name.startswith("uint") else 1)
