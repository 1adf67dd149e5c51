# SPDX-License-Identifier: BSD-3-Clause
"""Rows as an Arrow table. Arrays keep their dtype, also within dicts and lists."""

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

from isopool_batch import packages
from isopool_batch.results import Row

# Offsets of lists are 32 bits wide up to so many elements.
_MOST_ELEMENTS = 2**31 - 1


def table(rows: Sequence[Row]) -> Any:
    """Columns in the order in which keys first appear; a row without a key has null there.

    IDs of several types become strings. A dict without keys becomes null if no other has keys: Parquet has no type for
    it. Raises ValueError if other values of a column have types that don't go together.
    """
    pyarrow = packages.pyarrow()
    names = dict.fromkeys(name for row in rows for name in row)
    made = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if name == "id" and len(set(map(type, values))) > 1:
            values = list(map(str, values))
        try:
            made[name] = _column(pyarrow, values)
        except (pyarrow.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ValueError(_mixture(name, values, rows, error)) from error
    return pyarrow.table(made)


def misfits(rows: Sequence[Row]) -> dict[int, str]:
    """Rows, by index, whose values no column can have, or which do not go together with those of most other rows.

    Each with the reason. Empty if table() has another reason to refuse the rows.
    """
    pyarrow = packages.pyarrow()
    found: dict[int, str] = {}
    for name in dict.fromkeys(name for row in rows for name in row if name != "id"):
        values = [row.get(name) for row in rows]
        if _refusal(pyarrow, values):
            for index, value in enumerate(values):
                if reason := _refusal(pyarrow, [value]):
                    found[index] = f"column {name!r} can't have the value of type {type(value).__name__}: {reason}"
                    values[index] = None
        if _refusal(pyarrow, values):
            usual = _usual(pyarrow, values)
            for index in _others(pyarrow, values, usual):
                kind, usually = type(values[index]).__name__, type(usual).__name__
                found[index] = f"column {name!r} has the type {kind} here, which does not go together with the others"
                found[index] += f" of the part ({usually})" if kind != usually else ""
    return found


def _usual(pyarrow: Any, values: Sequence[Any]) -> Any:
    """The value with which most others go together."""
    models: list[Any] = []
    counts: list[int] = []
    for value in values:
        if value is None:
            continue
        place = next((place for place, model in enumerate(models) if not _refusal(pyarrow, [model, value])), len(models))
        if place == len(models):
            models.append(value)
            counts.append(0)
        counts[place] += 1
    return models[counts.index(max(counts))]


def _others(pyarrow: Any, values: Sequence[Any], model: Any) -> list[int]:
    """The values that can't be in a column with the model."""
    return [index for index, value in enumerate(values) if value is not None and _refusal(pyarrow, [model, value])]


def _refusal(pyarrow: Any, values: Sequence[Any]) -> str:
    """Why these values can't be one column, or nothing."""
    try:
        _column(pyarrow, values)
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError) as error:
        return _reason(error)
    return ""


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _mixture(name: str, values: Sequence[Any], rows: Sequence[Row], error: Exception) -> str:
    first: dict[str, Any] = {}
    for value, row in zip(values, rows, strict=True):
        first.setdefault(type(value).__name__, row["id"])
    kinds = ", ".join(f"{kind} (first of item {identity})" for kind, identity in first.items())
    return (
        f"the values of column {name!r} don't fit into one Parquet column: {kinds}: {_reason(error)}; "
        "return one type, or choose the format jsonl"
    )


def _column(pyarrow: Any, values: Sequence[Any]) -> Any:
    kinds = {type(value) for value in values if value is not None}
    names = {kind.__name__ for kind in kinds}
    if names == {"ndarray"}:
        return _arrays(pyarrow, values)
    if kinds == {dict}:
        return _structs(pyarrow, values)
    if names == {"ndarray", "list"}:
        values = [value if value is None or type(value) is list else value.tolist() for value in values]
        kinds = {list}
    if kinds == {list}:
        elements: set[type] = set().union(*(map(type, value) for value in values if value))
        if any(map(_is_nested, elements)):
            return _lists(pyarrow, values)
        if elements & _CONVERTED:
            _check_times_and_texts(elements, (each for value in values if value for each in value))
    elif kinds & _CONVERTED:
        _check_times_and_texts(kinds, values)
    return pyarrow.array(values)


# Of these types pyarrow makes one of a mixture, by changing the values: it drops the time of a datetime after a date,
# and a zone.
_CONVERTED = frozenset({datetime.datetime, datetime.date, str, bytes})


def _check_times_and_texts(kinds: set[type], values: Iterable[Any]) -> None:
    if datetime.date in kinds and datetime.datetime in kinds:
        raise ValueError("dates with and without a time")
    if str in kinds and bytes in kinds:
        raise ValueError("strings and bytes")
    if datetime.datetime in kinds:
        zoned = {each.utcoffset() is not None for each in values if type(each) is datetime.datetime}
        if len(zoned) > 1:
            raise ValueError("times with and without a zone")


def _is_nested(kind: type) -> bool:
    return kind in (list, dict) or kind.__name__ == "ndarray"


def _structs(pyarrow: Any, values: Sequence[dict[str, Any] | None]) -> Any:
    names = list(dict.fromkeys(name for value in values if value is not None for name in value))
    if not names:
        return pyarrow.nulls(len(values))
    children = [_column(pyarrow, [None if value is None else value.get(name) for value in values]) for name in names]
    mask = pyarrow.array([value is None for value in values], pyarrow.bool_())
    return pyarrow.StructArray.from_arrays(children, names=names, mask=mask)


def _lists(pyarrow: Any, values: Sequence[list[Any] | None]) -> Any:
    elements = [each for value in values if value is not None for each in value]
    lengths = [0 if value is None else len(value) for value in values]
    return _listed(pyarrow, _column(pyarrow, elements), lengths, [value is None for value in values])


def _arrays(pyarrow: Any, values: Sequence[Any]) -> Any:
    present = [value for value in values if value is not None]
    shapes = {value.shape for value in present}
    types = {value.dtype for value in present}
    dimensions = {len(shape) for shape in shapes}
    if len(types) > 1 or len(dimensions) > 1:
        return _column(pyarrow, [None if value is None else value.tolist() for value in values])
    numpy = packages.need("numpy", "a result that is an array")
    flat = pyarrow.array(numpy.concatenate([value.reshape(-1) for value in present]))
    missing = [value is None for value in values]
    if dimensions == {1} and len(shapes) == 1 and len(present) == len(values) and len(present[0]) > 0:
        return pyarrow.FixedSizeListArray.from_arrays(flat, len(present[0]))
    # From the innermost dimension outwards: a value has a list for each place in the dimensions before.
    for level in reversed(range(dimensions.pop())):
        if level == 0:
            return _listed(pyarrow, flat, [0 if value is None else len(value) for value in values], missing)
        counts = [numpy.prod(value.shape[:level], dtype=numpy.int64) for value in present]
        flat = _listed(pyarrow, flat, numpy.repeat([value.shape[level] for value in present], counts), None)
    raise AssertionError("values.py makes numbers of arrays without dimensions")


def _listed(pyarrow: Any, elements: Any, lengths: Any, missing: list[bool] | None) -> Any:
    """Lists of consecutive elements."""
    numpy = packages.need("numpy", "a result that is a list")
    offsets = numpy.zeros(len(lengths) + 1, numpy.int64)
    numpy.cumsum(lengths, out=offsets[1:])
    mask = pyarrow.array(missing, pyarrow.bool_()) if missing is not None and any(missing) else None
    if len(elements) > _MOST_ELEMENTS:
        return pyarrow.LargeListArray.from_arrays(pyarrow.array(offsets), elements, mask=mask)
    return pyarrow.ListArray.from_arrays(pyarrow.array(offsets.astype(numpy.int32)), elements, mask=mask)
