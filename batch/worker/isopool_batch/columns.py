# SPDX-License-Identifier: BSD-3-Clause
"""Rows as an Arrow table of given types. Arrays keep their dtype, also within dicts and lists.

pyarrow makes a column of many mixtures by changing values: 0.5 becomes the integer 0, a datetime loses its time among
dates, or its zone. So each value is compared with the type of its column first.
"""

import datetime
import decimal
from collections import Counter
from collections.abc import Sequence
from typing import Any

from isopool_batch import column_types, packages
from isopool_batch.column_types import Apart, Type
from isopool_batch.results import Row

# The types of the columns, in their order.
Schema = dict[str, Type]

# Offsets of lists are 32 bits wide.
_MOST_ELEMENTS = 2**31 - 1


def types_in(rows: Sequence[Row]) -> dict[str, Counter[Type]]:
    """How many values of each type each column has; columns in the order in which keys first appear.

    Without values that no column can have, as a list of numbers and strings.
    """
    found: dict[str, Counter[Type]] = {}
    for row in rows:
        for name, value in row.items():
            counts = found.setdefault(name, Counter())
            try:
                counts[column_types.of(value)] += 1
            except ValueError:
                continue
    return found


def schema_of(counts: dict[str, Counter[Type]]) -> Schema:
    """IDs of several types become texts."""
    schema = {name: column_types.usual(each) for name, each in counts.items()}
    try:
        schema["id"] = column_types.together(counts["id"])
    except Apart:
        schema["id"] = column_types.TEXT
    return schema


def table(rows: Sequence[Row], schema: Schema) -> Any:
    """A row without a key has null there. Raises ValueError if a value does not fit unchanged: see misfits()."""
    pyarrow = packages.pyarrow()
    for row in rows:
        if not row.keys() <= schema.keys():
            _check_columns(row, schema)
    return pyarrow.table({name: _column(_values(rows, name, type), type) for name, type in schema.items()})


def misfits(rows: Sequence[Row], schema: Schema) -> dict[int, str]:
    """The rows, by index, that table() refuses, each with the reason."""
    found: dict[int, str] = {}
    for index, row in enumerate(rows):
        if reason := _misfit(row, schema):
            found[index] = reason
    return found


def _misfit(row: Row, schema: Schema) -> str:
    for name, value in row.items():
        try:
            column_types.of(value)
        except ValueError as error:
            return f"column {name!r} can't have the value of this item: {error}"
    try:
        _check_columns(row, schema)
    except ValueError as error:
        return str(error)
    for name, type in schema.items():
        try:
            _column(_values([row], name, type), type)
        except _errors() as error:
            return (
                f"column {name!r} has the type {column_types.in_words(type)}, and the value of this item is "
                f"{_described(row.get(name))}{_reason(error)}"
            )
    return ""


def _check_columns(row: Row, schema: Schema) -> None:
    for name, value in row.items():
        if name not in schema and value is not None:
            raise ValueError(
                f"the schema of the job has no column {name!r}, and the value of this item is {_described(value)}"
            )


def _described(value: Any) -> str:
    try:
        words = column_types.in_words(column_types.of(value))
    except ValueError:
        return type(value).__name__
    shown = repr(value)
    return words if len(shown) > 40 or "\n" in shown else f"{shown} ({words})"


def _errors() -> tuple[type[Exception], ...]:
    return (packages.pyarrow().ArrowException, TypeError, ValueError, OverflowError)


def _reason(error: Exception) -> str:
    lines = str(error).splitlines()
    return f": {lines[0]}" if lines else ""


def _values(rows: Sequence[Row], name: str, type: Type) -> list[Any]:
    values = [row.get(name) for row in rows]
    return list(map(str, values)) if name == "id" and type == column_types.TEXT else values


# Of Python's classes, those whose values a column of this type has.
_CLASSES: dict[str, frozenset[type]] = {
    "null": frozenset(),
    "bool": frozenset({bool}),
    "text": frozenset({str}),
    "bytes": frozenset({bytes}),
    "date": frozenset({datetime.date}),
    "time": frozenset({datetime.time}),
    "duration": frozenset({datetime.timedelta}),
    "timestamp": frozenset({datetime.datetime}),
    "decimal": frozenset({decimal.Decimal}),
}
_INTEGERS = frozenset({int})
_NUMBERS = frozenset({int, float})


def _column(values: Sequence[Any], type: Type) -> Any:
    """Raises ArrowException, TypeError, ValueError or OverflowError if a value does not fit unchanged."""
    match type:
        case ("list" | "array", *_):
            return _lists(values, type)
        case ("dict", fields) if fields:
            return _structs(values, fields)
        case ("dict", _):
            _check_classes(values, frozenset({dict}))
            if any(values):
                raise ValueError("it has keys")
            return packages.pyarrow().nulls(len(values))
        case ("number", name):
            return _numbers(values, name)
        case _:
            _check_classes(values, _CLASSES[type[0]])
            if type[0] == "timestamp":
                _check_zones(values, type[1])
            if type[0] == "time" and any(each is not None and each.tzinfo is not None for each in values):
                raise ValueError("a time of day with a zone, which would be lost")
            return packages.pyarrow().array(values, column_types.arrow(type))


def _check_classes(values: Sequence[Any], allowed: frozenset[type]) -> None:
    for kind in set(map(type, values)):
        if kind is not type(None) and kind not in allowed:
            raise TypeError(f"a value of class {kind.__name__}")


def _check_zones(values: Sequence[Any], zoned: bool) -> None:
    for each in values:
        if each is not None and (each.utcoffset() is not None) != zoned:
            raise ValueError("a time without a zone" if zoned else "a time with a zone")


def _numbers(values: Sequence[Any], name: str) -> Any:
    pyarrow = packages.pyarrow()
    integers = "int" in name
    _check_classes(values, _INTEGERS if integers else _NUMBERS)
    if integers or name == "float64":
        return pyarrow.array(values, column_types.arrow(("number", name)))  # refuses an integer that is none of them
    wide = pyarrow.array(values, pyarrow.float64())
    return pyarrow.array(_exactly(wide.to_numpy(zero_copy_only=False), name), mask=_missing(values))


def _exactly(array: Any, name: str) -> Any:
    """The numpy array with another dtype. Raises ValueError if a value would change."""
    if name == "int":
        name = "int64"
    if array.dtype.name == name:
        return array
    made = array.astype(name)
    back = made.astype(array.dtype)
    same = (back == array) & ((made < 0) == (array < 0))
    if array.dtype.kind == "f":
        same |= (array != array) & (made != made)  # NaN
    if "float" in name and array.dtype.kind in "iu":
        # The conversion back may round as well, to the greatest integer.
        same &= abs(made) < 2.0**63
    if not same.all():
        raise ValueError(f"numbers that {name} does not have exactly")
    return made


def _missing(values: Sequence[Any]) -> Any:
    numpy = packages.need("numpy", "a result that is an array")
    return numpy.fromiter((value is None for value in values), bool, len(values))


def _structs(values: Sequence[Any], fields: Sequence[tuple[str, Type]]) -> Any:
    pyarrow = packages.pyarrow()
    _check_classes(values, frozenset({dict}))
    names = {name for name, _ in fields}
    for value in values:
        if value is not None and not value.keys() <= names:
            for key, each in value.items():
                if key not in names and each is not None:
                    raise ValueError(f"the key {key!r} is not in it")
    children = [
        _column([None if value is None else value.get(name) for value in values], type) for name, type in fields
    ]
    mask = pyarrow.array([value is None for value in values], pyarrow.bool_())
    return pyarrow.StructArray.from_arrays(children, fields=_fields(fields), mask=mask)


def _fields(fields: Sequence[tuple[str, Type]]) -> list[Any]:
    return [packages.pyarrow().field(name, column_types.arrow(type)) for name, type in fields]


def _lists(values: Sequence[Any], type: Type) -> Any:
    numpy = packages.need("numpy", "a result that is a list")
    present = [value for value in values if value is not None]
    if present and all(map(_is_array, present)):
        elements = _elements(present, type[-1])
    else:
        values = [value.tolist() if _is_array(value) else value for value in values]
        _check_classes(values, frozenset({list}))
        elements = _column([each for value in values if value is not None for each in value], type[-1])
    lengths = numpy.fromiter((0 if value is None else len(value) for value in values), numpy.int64, len(values))
    return _listed(lengths, _missing(values), elements, type)


def _is_array(value: Any) -> bool:
    return type(value).__name__ == "ndarray"


def _elements(arrays: Sequence[Any], type: Type) -> Any:
    """The elements of all arrays, one after the other, as a column. type: of an element."""
    pyarrow = packages.pyarrow()
    numpy = packages.need("numpy", "a result that is an array")
    dimensions = {array.ndim for array in arrays}
    if len(dimensions) > 1 or type[0] not in ("list", "array"):
        if dimensions != {1}:
            raise ValueError("an array of more dimensions")
        if len({array.dtype for array in arrays}) > 1:
            # numpy makes one dtype of several by changing values.
            return pyarrow.concat_arrays([_flat(array, type) for array in arrays])
        return _flat(numpy.concatenate(arrays), type)
    if dimensions == {1}:
        raise ValueError("an array of fewer dimensions")
    inner = [array.reshape(array.shape[0] * array.shape[1], *array.shape[2:]) for array in arrays]
    counts = [array.shape[0] for array in arrays]
    lengths = numpy.repeat([array.shape[1] for array in arrays], counts)
    return _listed(lengths, numpy.zeros(len(lengths), bool), _elements(inner, type[-1]), type)


def _flat(array: Any, type: Type) -> Any:
    """The numbers of the array as a column. Raises ValueError or TypeError if it does not have each of them."""
    pyarrow = packages.pyarrow()
    if len(array) == 0:
        return pyarrow.array([], column_types.arrow(type))
    kind = array.dtype.kind
    if type == column_types.BOOL and kind == "b":
        return pyarrow.array(array)
    if type[0] != "number" or kind == "b" or (kind == "f" and "int" in type[1]):
        raise TypeError(f"an array of the dtype {array.dtype}")
    return pyarrow.array(_exactly(array, type[1]))


def _listed(lengths: Any, missing: Any, elements: Any, type: Type) -> Any:
    """Lists of consecutive elements. missing: which are null; these have the length 0."""
    pyarrow = packages.pyarrow()
    numpy = packages.need("numpy", "a result that is a list")
    mask = pyarrow.array(missing) if missing.any() else None
    if type[0] == "array":
        if (lengths[~missing] != type[1]).any():
            raise ValueError("a list of another length")
        if mask is not None:
            elements = _with_gaps(elements, missing, type[1])
        return pyarrow.FixedSizeListArray.from_arrays(elements, type=column_types.arrow(type), mask=mask)
    if len(elements) > _MOST_ELEMENTS:
        raise ValueError("its lists have more than 2 ** 31 elements in one part: choose a smaller chunk size")
    offsets = numpy.zeros(len(lengths) + 1, numpy.int32)
    numpy.cumsum(lengths, out=offsets[1:])
    return pyarrow.ListArray.from_arrays(pyarrow.array(offsets), elements, type=column_types.arrow(type), mask=mask)


def _with_gaps(elements: Any, missing: Any, length: int) -> Any:
    """The elements, with nulls for those of lists that are missing: such a list has its place, too."""
    pyarrow = packages.pyarrow()
    numpy = packages.need("numpy", "a result that is a list")
    gaps = numpy.repeat(missing, length)
    places = numpy.cumsum(~gaps) - 1
    return elements.take(pyarrow.array(places.clip(0), mask=gaps)) if len(elements) else pyarrow.nulls(len(gaps), elements.type)
