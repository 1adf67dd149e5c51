# SPDX-License-Identifier: BSD-3-Clause
"""What a model returned for a batch, item by item; and the row of an item."""

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

from isopool_batch import values

Row = dict[str, Any]


def split(result: Any, items: int) -> list[Any]:
    """One result per item. Raises TypeError or ValueError if there are not as many."""
    if isinstance(result, Mapping):
        columns = {key: _parts(each, items, f"{key!r}: ") for key, each in result.items()}
        return [{key: column[item] for key, column in columns.items()} for item in range(items)]
    return _parts(result, items, "")


def is_columns(result: Any) -> bool:
    """Whether the result's own keys become columns."""
    # The first test is for speed: that of an abstract class takes as long as all else here.
    return (
        type(result) is dict
        or isinstance(result, Mapping)
        or (dataclasses.is_dataclass(result) and not isinstance(result, type))
    )


def row(identity: Any, result: Any) -> Row:
    """The row of an item, of storable values."""
    stored = values.storable(result)
    if is_columns(result):
        return {"id": identity, **stored}
    return {"id": identity, "result": stored}


def check_id(identity: Any, result: Any) -> None:
    """Raises ValueError if the result has another ID than its item: one of both would be lost."""
    if not is_columns(result):
        return
    if isinstance(result, (dict, Mapping)):
        if "id" not in result:
            return
        other = values.storable(result["id"])
    else:
        other = values.storable(getattr(result, "id", identity))
    if type(other) is not type(identity) or other != identity:
        raise ValueError(f"the result has the id {other!r}, but its item has the id {identity!r}: name it otherwise")


def _parts(result: Any, items: int, where: str) -> list[Any]:
    torch = sys.modules.get("torch")
    numpy = sys.modules.get("numpy")
    if torch is not None and isinstance(result, torch.Tensor):
        _check(result.shape[0] if result.dim() else None, items, where)
        result = result.detach()
        # One transfer for the batch instead of one per item.
        return list((result if result.is_cpu else result.cpu()).unbind(0))
    if numpy is not None and isinstance(result, numpy.ndarray):
        _check(result.shape[0] if result.ndim else None, items, where)
        return list(result)
    if isinstance(result, (list, tuple)):
        _check(len(result), items, where)
        return list(result)
    name = type(result).__qualname__
    raise TypeError(
        f"{where}the model returned an object of type {name} for {items} items: a list, tensor or array with one "
        "result per item, or a dict of these, is needed"
    )


class WrongCount(ValueError):
    """The model has not returned one result per item: which result is whose is not known, for smaller calls neither."""


def _check(results: int | None, items: int, where: str) -> None:
    if results is None:
        raise WrongCount(f"{where}the model returned a single number for {items} items")
    if results != items:
        raise WrongCount(f"{where}the model returned {results} results for {items} items")
