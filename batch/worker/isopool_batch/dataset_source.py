# SPDX-License-Identifier: BSD-3-Clause
"""Map-style datasets: an item is dataset[i]."""

from collections.abc import Iterator
from typing import Any

from isopool_batch import fingerprint, models
from isopool_batch.job import Callee, Ref, digest
from isopool_batch.sources import identified


class DatasetItems:
    def __init__(self, dataset: Any, label: str, row: int, column: str) -> None:
        self._dataset = dataset
        self._label = label
        self._row = row
        self._column = column

    def fallback_id(self, index: int) -> str:
        return f"{self._label}:{self._row + index}"

    def read(self, index: int) -> tuple[Any, Any]:
        return identified(self._dataset[self._row + index], self.fallback_id(index), self._column)


class DatasetSource:
    """Of an object with __len__ and __getitem__, or of a function or class that makes it, once per worker."""

    def __init__(self, callee: Callee, column: str) -> None:
        self._callee = callee
        self._label = callee.name or "dataset"
        self._column = column
        self._made: Any = None

    def count(self) -> int:
        items = len(self._dataset())
        if items == 0:
            raise ValueError(f"the dataset {self._callee} has no items")
        return items

    def fingerprint(self) -> str:
        return digest([len(self._dataset()), fingerprint.of_bytes(self._callee.path)])

    def refs(self, rows: int) -> Iterator[Ref]:
        items = len(self._dataset())
        for row in range(0, items, rows):
            yield {"rows": min(rows, items - row), "label": self._label, "row": row}

    def open(self, ref: Ref) -> DatasetItems:
        return DatasetItems(self._dataset(), self._label, ref["row"], self._column)

    def _dataset(self) -> Any:
        if self._made is None:
            made = models.load(self._callee)
            if callable(made) and (isinstance(made, type) or not _is_dataset(made)):
                made = made()
            if not _is_dataset(made):
                kind = type(made).__qualname__
                raise ValueError(f"{self._callee} is of class {kind}: a dataset with __len__ and __getitem__ is needed")
            self._made = made
        return self._made


def _is_dataset(value: Any) -> bool:
    return hasattr(type(value), "__len__") and hasattr(type(value), "__getitem__")
