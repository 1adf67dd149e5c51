# SPDX-License-Identifier: BSD-3-Clause
"""JSON lines: an item is a line. Blank lines are no items."""

import itertools
import json
import zlib
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from isopool_batch import fingerprint
from isopool_batch.job import Ref
from isopool_batch.sources import Stamp, changed, identified, labels, no_items, opened, stamp_of, unreadable

_BUFFER = 1 << 20
_PROBE = 4096


class JsonlItems:
    def __init__(self, path: str, label: str, ref: Ref, column: str) -> None:
        self._path = path
        self._label = label
        self._row: int = ref["row"]
        self._column = column
        self._file: BinaryIO | None = None
        self._planned: tuple[int, int, int] = (ref["offset"], ref["bytes"], ref["crc"])
        self._right: Stamp | None = None  # of the file when its bytes were the planned ones
        # Number i is an offset after which item i is the first line that is not blank.
        self._offsets = array("Q", [ref["offset"]])

    def fallback_id(self, index: int) -> str:
        return f"{self._label}:{self._row + index}"

    def read(self, index: int) -> tuple[Any, Any]:
        return identified(json.loads(self._line(index)), self.fallback_id(index), self._column)

    def change(self) -> str:
        stamp = stamp_of(self._path)
        if stamp is None:
            return changed(self._path)
        if stamp != self._right:
            if not self._has_planned_bytes():
                return changed(self._path)
            self._right = stamp
        return ""

    def _has_planned_bytes(self) -> bool:
        offset, left, wanted = self._planned
        crc = 0
        with opened(self._path, 0) as file:
            file.seek(offset)
            while left > 0:
                block = file.read(min(left, _BUFFER))
                if not block:
                    return False
                crc = zlib.crc32(block, crc)
                left -= len(block)
        return crc == wanted

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
    """A ref has the file's place among the paths ("file"), and the offset, number and CRC-32 of the chunk's bytes."""

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
                row = taken = offset = begin = crc = 0
                for line in itertools.chain(file, [None]):
                    if line is not None:
                        if not line.isspace():
                            if taken == 0:
                                begin, crc = offset, 0
                            taken += 1
                        crc = zlib.crc32(line, crc)
                        offset += len(line)
                    if taken == rows or (line is None and taken > 0):
                        place = {"file": number, "offset": begin, "bytes": offset - begin, "crc": crc}
                        yield {"rows": taken, "label": label, "row": row, **place}
                        row += taken
                        taken = 0

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
