# SPDX-License-Identifier: BSD-3-Clause
"""JSON lines: an item is a line. Blank lines are no items."""

import json
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from isopool_batch import fingerprint
from isopool_batch.job import Ref
from isopool_batch.sources import identified, labels, no_items, opened, unreadable

_BUFFER = 1 << 20
_PROBE = 4096


class JsonlItems:
    def __init__(self, path: str, label: str, ref: Ref, column: str) -> None:
        self._path = path
        self._label = label
        self._row: int = ref["row"]
        self._column = column
        self._file: BinaryIO | None = None
        # Number i is an offset after which item i is the first line that is not blank.
        self._offsets = array("Q", [ref["offset"]])

    def fallback_id(self, index: int) -> str:
        return f"{self._label}:{self._row + index}"

    def read(self, index: int) -> tuple[Any, Any]:
        return identified(json.loads(self._line(index)), self.fallback_id(index), self._column)

    def _line(self, index: int) -> bytes:
        if self._file is None:
            self._file = opened(self._path, _BUFFER)
        offsets = self._offsets
        at = min(index, len(offsets) - 1)
        offset = offsets[at]
        self._file.seek(offset)
        while True:
            line = self._file.readline()
            if not line:
                raise ValueError(f"{self.fallback_id(index)} is missing: {self._path} has changed since it was planned")
            offset += len(line)
            if line.isspace():
                continue
            if at + 1 == len(offsets):
                offsets.append(offset)
            if at == index:
                return line
            at += 1


class JsonlSource:
    """A ref has the file's place among the paths ("file") and the offset of the chunk's first line ("offset")."""

    def __init__(self, paths: Sequence[str], column: str) -> None:
        self._paths = paths
        self._labels = labels(paths)
        self._column = column

    def count(self) -> int:
        items = 0
        for path in self._paths:
            with _opened(path) as file:
                items += sum(not line.isspace() for line in file)
        if items == 0:
            raise no_items(self._paths)
        return items

    def fingerprint(self) -> str:
        return fingerprint.of_samples(self._paths, self._labels)

    def refs(self, rows: int) -> Iterator[Ref]:
        for number, (path, label) in enumerate(zip(self._paths, self._labels, strict=True)):
            with _opened(path) as file:
                row = taken = offset = begin = 0
                for line in file:
                    if not line.isspace():
                        if taken == 0:
                            begin = offset
                        taken += 1
                    offset += len(line)
                    if taken == rows:
                        yield {"rows": taken, "label": label, "row": row, "file": number, "offset": begin}
                        row += taken
                        taken = 0
                if taken:
                    yield {"rows": taken, "label": label, "row": row, "file": number, "offset": begin}

    def open(self, ref: Ref) -> JsonlItems:
        return JsonlItems(self._paths[ref["file"]], self._labels[ref["file"]], ref, self._column)


def _opened(path: str) -> BinaryIO:
    try:
        file = opened(path, _BUFFER)
        begin = file.read(_PROBE)
        file.seek(0)
    except OSError as error:
        raise unreadable(path, error) from None
    # Compressed and binary files have such bytes; JSON text has none.
    if b"\0" in begin or begin.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd")):
        file.close()
        raise ValueError(f"{path} is not a text file of JSON lines: decompress or convert it first")
    return file
