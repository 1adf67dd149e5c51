# SPDX-License-Identifier: BSD-3-Clause
"""Map-style datasets: an item is dataset[i]."""

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

from isopool_batch import durable, fingerprint, item_digest, models
from isopool_batch.growth import Growth, Known
from isopool_batch.job import Callee, Input, Ref, digest
from isopool_batch.sources import identified

_FILE = "dataset.json"
# So many items are noted.
_COMPARED = 4


class DatasetItems:
    def __init__(self, source: "DatasetSource", label: str, row: int, column: str) -> None:
        self._source = source
        self._label = label
        self._row = row
        self._column = column

    def fallback_id(self, index: int) -> str:
        return f"{self._label}:{self._row + index}"

    def read(self, index: int) -> tuple[Any, Any]:
        return identified(self._source.item(self._row + index), self.fallback_id(index), self._column)

    def change(self) -> str:
        return self._source.change()


class DatasetSource:
    """Of an object with __len__ and __getitem__, or of a function or class that makes it, once per worker.

    Each worker makes it anew, and its items must be the same ones each time. So the first worker that has read some
    notes their digests in the job's folder, and each other worker compares its own. Only items that a worker has read
    are compared: others may crash it.
    """

    def __init__(self, callee: Callee, column: str, job_folder: str) -> None:
        self._callee = callee
        self._label = callee.name or "dataset"
        self._column = column
        self._file = os.path.join(job_folder, _FILE)
        self._made: Any = None
        self._read: dict[int, str] = {}  # digests of items that this worker has read
        self._compared = False

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

    def grow(self, before: Input, known: list[Known]) -> Growth:
        raise ValueError(f"{self._callee} is a dataset, whose items can't be compared with those before: --update is for files")

    def open(self, ref: Ref) -> DatasetItems:
        return DatasetItems(self, self._label, ref["row"], self._column)

    def item(self, index: int) -> Any:
        item = self._dataset()[index]
        if len(self._read) < _COMPARED and not self._compared:
            self._read[index] = item_digest.of_item(item)
        return item

    def change(self) -> str:
        if self._compared:
            return ""
        noted = self._noted()
        if noted is None:
            if self._read:
                self._note()
            return ""
        for index, digest in noted.items():
            if digest and digest != item_digest.of_item(self._dataset()[index]):
                return (
                    f"item {index} of {self._callee} is not the one that another worker or run has read: the dataset "
                    "must have the same order in each process (sort it, or seed the shuffle)"
                )
        self._compared = True
        return ""

    def _noted(self) -> dict[int, str] | None:
        """Of this dataset's file; None: there are none."""
        try:
            with open(self._file, encoding="utf-8") as file:
                noted = json.load(file)
        except FileNotFoundError:
            return None
        if noted["of"] == self.fingerprint():
            return {int(index): digest for index, digest in noted["items"].items()}
        durable.remove(self._file)  # of an earlier job
        return None

    def _note(self) -> None:
        """Without a digest for an item that is another one each time, as with a random part."""
        again = {index: item_digest.of_item(self._dataset()[index]) for index in self._read}
        items = {index: digest if again[index] == digest else "" for index, digest in self._read.items()}
        text = json.dumps({"of": self.fingerprint(), "items": items})

        def fill(file: BinaryIO) -> None:
            file.write(text.encode())

        # Another worker may have noted its own meanwhile: the next look compares with these.
        with contextlib.suppress(FileExistsError):
            durable.publish(self._file, fill, "dataset")

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
