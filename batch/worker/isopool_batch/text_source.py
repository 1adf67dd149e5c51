# SPDX-License-Identifier: BSD-3-Clause
"""Text files, also compressed: an item is a line of JSON, an element of a JSON array, or a row of CSV."""

import itertools
import zlib
from array import array
from collections.abc import Iterator
from typing import Any

from isopool_batch import records, streams
from isopool_batch.growth import Growth, Known
from isopool_batch.job import Input, Ref
from isopool_batch.sources import Stamp, changed, opened, stamp_of, unreadable
from isopool_batch.tables import TableItems, Tables

_BUFFER = 1 << 20
# Values of a compressed file that are kept for another reading.
_MOST_KEPT = 8 << 20


class _Reader:
    """Reads records one after the other; mostly the next one, also of the worker's next chunk."""

    def __init__(self, path: str) -> None:
        self._file = streams.contents(path)
        self._format = records.format_of(path, self._file)
        self._begin = self._format.begin(self._file)
        self.is_compressed = streams.is_compressed(path)
        self._path = path
        self.item = self._format.item
        self._go_to(self._begin)

    def _go_to(self, offset: int) -> None:
        self._file.seek(offset)
        self._records = self._format.cut(self._file)
        self.offset = offset

    def seek(self, offset: int) -> None:
        """A record begins there."""
        if not self.is_compressed and offset != self.offset:
            self._go_to(offset)
        elif offset < self.offset or self.offset < 0:
            self._go_to(self._begin)
        while self.offset < offset:
            if self.next() is None:
                break
        if self.offset != offset:
            raise ValueError(f"{self._path} has changed since it was planned")

    def next(self) -> records.Record | None:
        """None at the end."""
        try:
            record = next(self._records, None)
        except BaseException:
            self.offset = -1  # the place is unknown
            raise
        if record is not None:
            self.offset += len(record[0])
        return record


class TextItems(TableItems):
    def __init__(self, source: "TextSource", tables: Tables, ref: Ref, column: str) -> None:
        super().__init__(tables, ref, column)
        self._source = source
        # Number i is an offset after which item i is in the first record that has one.
        self._offsets = array("Q", [ref["offset"]])
        # Values by index with their bytes, of a compressed file: it is read again from its begin for an earlier item.
        self._kept: dict[int, tuple[Any, int]] = {}
        self._kept_bytes = 0

    def read(self, index: int) -> tuple[Any, Any]:
        item = self._source.reader(self._ref).item(self._value(index))
        return self._identified(item, self.fallback_id(index))

    def change(self) -> str:
        return self._source.change(self._ref)

    def _value(self, index: int) -> Any:
        if index in self._kept:
            return self._kept[index][0]
        reader = self._source.reader(self._ref)
        offsets = self._offsets
        at = min(index, len(offsets) - 1)
        reader.seek(offsets[at])
        while True:
            record = reader.next()
            if record is None:
                raise ValueError(f"{self.fallback_id(index)} is missing: the file has changed since it was planned")
            raw, value = record
            if value is None:
                continue
            if at + 1 == len(offsets):
                offsets.append(reader.offset)
            if at == index:
                if reader.is_compressed:
                    self._keep(index, len(raw), value)
                return value
            at += 1

    def _keep(self, index: int, size: int, value: Any) -> None:
        self._kept[index] = (value, size)
        self._kept_bytes += size
        while len(self._kept) > 1 and self._kept_bytes > _MOST_KEPT:
            self._kept_bytes -= self._kept.pop(next(iter(self._kept)))[1]


class TextSource:
    """A ref has Tables.identity() of its file, the offset and the number of the chunk's bytes, and their CRC-32 ("crc").

    Of a compressed file, offset and bytes are those of its contents, and there is no CRC.
    """

    def __init__(self, tables: Tables, column: str) -> None:
        self._tables = tables
        self._column = column
        # The file that was read last, by its path.
        self._reader: tuple[str, _Reader] | None = None
        # By file and offset: the file when the chunk's bytes were the planned ones.
        self._right: tuple[tuple[int, int], Stamp] | None = None

    def count(self) -> int:
        return self._tables.require(sum(value is not None for path in self._tables.paths for _, value in _records(path)))

    def fingerprint(self) -> str:
        return self._tables.fingerprint()

    def refs(self, rows: int) -> Iterator[Ref]:
        for number in self._tables.left():
            path = self._tables.paths[number]
            identity = self._tables.identity(number)
            compressed = streams.is_compressed(path)
            row = taken = begin = end = crc = 0
            for raw, value in itertools.chain(_records(path), [(b"", None)]):
                if value is not None:
                    if taken == 0:
                        begin, crc = end, 0
                    taken += 1
                crc = zlib.crc32(raw, crc)
                end += len(raw)
                if taken == rows or (not raw and taken > 0):
                    place = {"offset": begin, "bytes": end - begin} | ({} if compressed else {"crc": crc})
                    yield {"rows": taken, "row": row, **place, **identity}
                    row += taken
                    taken = 0

    def open(self, ref: Ref) -> TextItems:
        return TextItems(self, self._tables, ref, self._column)

    def grow(self, before: Input, known: list[Known]) -> Growth:
        return self._tables.grow(before, known, lambda ref: "crc" in ref and _has_bytes(self._tables.path(ref), ref))

    def reader(self, ref: Ref) -> _Reader:
        path = self._tables.path(ref)
        if self._reader is None or self._reader[0] != path:
            self._reader = (path, _Reader(path))
        return self._reader[1]

    def change(self, ref: Ref) -> str:
        if "crc" not in ref:
            return self._tables.change(ref)
        path = self._tables.path(ref)
        stamp = stamp_of(path)
        if stamp is None:
            return changed(path)
        place = (ref["file"], ref["offset"])
        if self._right != (place, stamp):
            if not _has_bytes(path, ref):
                return changed(path)
            self._right = (place, stamp)
        return ""


def _has_bytes(path: str, ref: Ref) -> bool:
    crc, left = 0, ref["bytes"]
    with opened(path, 0) as file:
        file.seek(ref["offset"])
        while left > 0:
            block = file.read(min(left, _BUFFER))
            if not block:
                return False
            crc = zlib.crc32(block, crc)
            left -= len(block)
    return bool(crc == ref["crc"])


def _records(path: str) -> Iterator[records.Record]:
    """Of a file, with what comes before the first one as a record that has no item."""
    try:
        with streams.contents(path) as file:
            format = records.format_of(path, file)
            begin = format.begin(file)
            file.seek(0)
            yield file.read(begin), None
            yield from format.cut(file)
    except streams.DAMAGED as error:
        raise unreadable(path, error) from None
