# SPDX-License-Identifier: BSD-3-Clause
"""Parquet files: an item is a row, a dict. A chunk lies within one row group."""

import os
from collections.abc import Iterator
from typing import Any

from isopool_batch import packages
from isopool_batch.growth import Growth, Known
from isopool_batch.job import Input, Ref
from isopool_batch.sources import not_regular, unreadable
from isopool_batch.tables import TableItems, Tables

# Rows that are Python objects at the same time: so many, or as many as have so many bytes.
_BLOCK_ROWS = 256
_BLOCK_BYTES = 8 << 20

_BUFFER = 1 << 20

# A retry of a range that crosses the border of two blocks finds both.
_KEPT_BLOCKS = 2


class _Reader:
    """Reads rows of one file. Its memory is that of some blocks, however large a row group is.

    Parquet can be decoded from the begin of a row group only. So the reader keeps its place: the next chunk of a worker
    mostly lies behind it. Rows before the place cost the decoding of the group once more.
    """

    def __init__(self, path: str, column: str) -> None:
        self.file = _opened(path)
        names = self.file.schema_arrow.names
        # A column of the file's folder only: one of the file tells how many rows there are.
        wanted = [name for name in dict.fromkeys((column, "id")) if name in names] or names[:1]
        self._columns = wanted if column else None
        self._group = -1
        self._place = 0
        self._batches: Iterator[Any] = iter(())
        self._rest: Any = None  # a batch from the place on

    def block_rows(self, group: int) -> int:
        metadata = self.file.metadata.row_group(group)
        bytes_of_row: int = max(metadata.total_byte_size // max(metadata.num_rows, 1), 1)
        return min(max(_BLOCK_BYTES // bytes_of_row, 1), _BLOCK_ROWS)

    def read(self, group: int, first: int, count: int) -> Any:
        """The rows as a table."""
        try:
            return self._read(group, first, count)
        except BaseException:
            self._group = -1  # the place is unknown
            raise

    def _read(self, group: int, first: int, count: int) -> Any:
        if group != self._group or first < self._place:
            self._batches = self.file.iter_batches(
                batch_size=self.block_rows(group), row_groups=[group], columns=self._columns, use_threads=False
            )
            self._rest = None
            self._group, self._place = group, 0
        taken = []
        while count > 0:
            batch = self._rest if self._rest is not None else next(self._batches, None)
            if batch is None:
                raise ValueError("the row group has fewer rows than planned: the file has changed")
            begin = min(first - self._place, batch.num_rows)
            used = min(batch.num_rows - begin, count)
            if used:
                taken.append(batch.slice(begin, used))
            first += used
            count -= used
            self._place += begin + used
            self._rest = batch.slice(begin + used) if begin + used < batch.num_rows else None
        return packages.pyarrow().Table.from_batches(taken)


class ParquetItems(TableItems):
    def __init__(self, source: "ParquetSource", tables: Tables, ref: Ref, column: str) -> None:
        super().__init__(tables, ref, column)
        self._source = source
        self._block_rows = 0  # unknown
        # Tables and their rows; a row that was given out is replaced by None.
        self._blocks: dict[int, tuple[Any, list[Any]]] = {}

    def change(self) -> str:
        change = super().change()
        if not change:
            self._source.reader(self._ref)
        return change

    def read(self, index: int) -> tuple[Any, Any]:
        if self._block_rows == 0:
            self._block_rows = self._source.reader(self._ref).block_rows(self._ref["group"])
        number, place = divmod(index, self._block_rows)
        table, rows = self._blocks.get(number) or self._load(number)
        row, rows[place] = rows[place], None
        if row is None:
            row = table.slice(place, 1).to_pylist()[0]
        return self._identified(row, self.fallback_id(index))

    def _load(self, number: int) -> tuple[Any, list[Any]]:
        ref = self._ref
        begin = number * self._block_rows
        count = min(self._block_rows, ref["rows"] - begin)
        table = self._source.reader(ref).read(ref["group"], ref["start"] + begin, count)
        try:
            rows = table.to_pylist()
        except Exception:
            # A row that Python can't have, as a date above 9999, is a failure of its own item.
            rows = [None] * count
        block = (table, rows)
        while len(self._blocks) >= _KEPT_BLOCKS:
            del self._blocks[next(iter(self._blocks))]
        self._blocks[number] = block
        return block


class ParquetSource:
    """A ref has Tables.identity() of its file, the row group ("group") and the row in it ("start").

    The end of the file, where its description is, is in the digest of the identity.
    """

    def __init__(self, tables: Tables, column: str) -> None:
        self._tables = tables
        self._column = column
        self._groups: list[list[int]] | None = None
        # The file that was read last, by its path.
        self._reader: tuple[str, _Reader] | None = None

    def count(self) -> int:
        return self._tables.require(sum(map(sum, self._row_groups())))

    def fingerprint(self) -> str:
        return self._tables.fingerprint()

    def refs(self, rows: int) -> Iterator[Ref]:
        for number in self._tables.left():
            row = 0
            identity = self._tables.identity(number)
            for group, size in enumerate(self._row_groups()[number]):
                for start in range(0, size, rows):
                    count = min(rows, size - start)
                    yield {"rows": count, "row": row + start, "group": group, "start": start, **identity}
                row += size

    def open(self, ref: Ref) -> ParquetItems:
        return ParquetItems(self, self._tables, ref, self._column)

    def grow(self, before: Input, known: list[Known]) -> Growth:
        return self._tables.grow(before, known)

    def reader(self, ref: Ref) -> _Reader:
        path = self._tables.path(ref)
        if self._reader is None or self._reader[0] != path:
            self._reader = (path, _Reader(path, self._column))
        return self._reader[1]

    def _row_groups(self) -> list[list[int]]:
        """The number of rows of each row group of each file."""
        if self._groups is None:
            found = []
            for path in self._tables.paths:
                with _opened(path) as file:
                    names = file.schema_arrow.names
                    if len(set(names)) < len(names):
                        twice = next(name for name in names if names.count(name) > 1)
                        raise ValueError(f"{path} has two columns {twice!r}: a row can have one of them only")
                    for name in self._tables.names():
                        if name in names:
                            raise ValueError(f"{path} has a column {name!r}, and so has its folder: a row can have one only")
                    names += self._tables.names()
                    if self._column and self._column not in names:
                        raise ValueError(f"{path} has no column {self._column!r}; it has {', '.join(names)}")
                    metadata = file.metadata
                    found.append([metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)])
            self._groups = found
        return self._groups


def _opened(path: str) -> Any:
    parquet = packages.parquet()
    if os.path.exists(path) and not os.path.isfile(path):
        raise not_regular(path)
    try:
        # Not a whole row group at a time.
        return parquet.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)
    except OSError as error:
        if error.errno is not None:
            raise unreadable(path, error) from None
        raise _not_parquet(path, error) from None
    except packages.pyarrow().ArrowException as error:
        raise _not_parquet(path, error) from None


def _not_parquet(path: str, error: Exception) -> ValueError:
    reason = (str(error).splitlines() or ["empty file"])[0]
    return ValueError(f"{path} is not a Parquet file that can be read: {reason}")
