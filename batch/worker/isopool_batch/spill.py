# SPDX-License-Identifier: BSD-3-Clause
"""The results of an unfinished chunk, in a file that survives the worker. A death costs only the batch that ran.

The file has records: magic bytes, CRC-32 and length of the content, and the content. The first record is the header,
which names job and chunk; each other one is a pickle of (items, rows) of a call. It is not synchronized with the disk:
after a loss of power the records from the first damaged one on are computed again.

Only one process writes a spill. The workers of a shared supervisor outlive a driver that was killed, so one may still
run a call of the chunk while the next run opens it: then a copy takes the file's place, and the old worker keeps a file
that has no name.
"""

import contextlib
import fcntl
import json
import os
import pickle
import shutil
import struct
import weakref
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from isopool_batch import durable
from isopool_batch.crash_points import crash_point
from isopool_batch.results import Row

_MAGIC = b"IPB1"
_HEAD = struct.Struct("<4sIQ")


def packed(indexes: Sequence[int], rows: Sequence[Row]) -> bytes:
    """The record of a call's rows. Raises what pickling raises."""
    return _record(pickle.dumps((indexes, rows), 5))


class Spill:
    """The file at `path`, made if it is absent. One of another job or chunk, or a damaged one, is begun anew."""

    def __init__(self, path: str, identity: str) -> None:
        self._path = path
        self._descriptor = _open_alone(path)
        self._status = os.fstat(self._descriptor)
        self._close = weakref.finalize(self, os.close, self._descriptor)
        header = json.dumps(identity).encode()
        self.recovered: set[int] = set()
        self._end = self._scan(header)
        # Bytes behind the last valid record: they must be cut off before the next one.
        self._has_tail = os.fstat(self._descriptor).st_size > self._end
        if self._has_tail:
            crash_point("before-spill-truncate")
            self._cut()
            crash_point("after-spill-truncate")
        if self._end == 0:
            crash_point("before-spill-header")
            self._append(_record(header))
            crash_point("after-spill-header")

    def append(self, record: bytes) -> None:
        """Adds a record of packed(), or raises OSError and adds nothing."""
        crash_point("before-spill-append")
        self._append(record)
        crash_point("after-spill-append")

    def rows(self) -> dict[int, Row]:
        """The row of each item. If several records have an item, the first one counts."""
        found: dict[int, Row] = {}
        with self._reader() as file:
            for number, (_, content) in enumerate(_contents(file)):
                if number > 0:
                    for item, row in zip(*pickle.loads(content), strict=True):
                        found.setdefault(item, row)
        return found

    def is_open(self) -> bool:
        """False if code of an item has closed the file, whose number another one may have now."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._status)
        except OSError:
            return False

    def is_current(self) -> bool:
        """False if another process has taken the file's place."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def remove(self) -> None:
        crash_point("before-spill-remove")
        if self.is_current():
            os.unlink(self._path)
            # Of a worker that died while it made one.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(durable.aside(self._path))
        crash_point("after-spill-remove")
        self._close()
        # Another file may get the number: a call after this one must not write there.
        self._descriptor = -1

    def _scan(self, header: bytes) -> int:
        """Finds the items of valid records; returns the offset behind these, 0 if the header is not this one."""
        end = 0
        with self._reader() as file:
            for number, (next_end, content) in enumerate(_contents(file)):
                if number == 0:
                    if content != header:
                        return 0
                else:
                    items = _items(content)
                    if items is None:
                        break
                    self.recovered.update(items)
                end = next_end
        return end

    def _reader(self) -> BinaryIO:
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        return open(self._descriptor, "rb", closefd=False)

    def _append(self, record: bytes) -> None:
        if self._has_tail:
            self._cut()
        self._has_tail = True
        try:
            rest = memoryview(record)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            # A part of the record would hide the records behind it. If this fails, too, the next call tries again.
            self._cut()
            raise
        self._has_tail = False
        self._end += len(record)

    def _cut(self) -> None:
        os.ftruncate(self._descriptor, self._end)
        self._has_tail = False


def _open_alone(path: str) -> int:
    """A descriptor of the file at `path`, which no other process writes."""
    descriptor = _open(path)
    if not _lock(descriptor):
        with open(descriptor, "rb") as taken:
            durable.write(path, lambda file: shutil.copyfileobj(taken, file), "spill-copy")
        descriptor = _open(path)
        _lock(descriptor)
    return descriptor


def _open(path: str) -> int:
    with durable.own_mask():
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)


def _lock(descriptor: int) -> bool:
    """False if another process has the lock, or the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _record(content: bytes) -> bytes:
    return _HEAD.pack(_MAGIC, zlib.crc32(content), len(content)) + content


def _contents(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The content of each valid record, and the offset behind the record, up to the first damaged one."""
    size = os.fstat(file.fileno()).st_size
    end = 0
    while len(head := file.read(_HEAD.size)) == _HEAD.size:
        magic, checksum, length = _HEAD.unpack(head)
        end += _HEAD.size + length
        if magic != _MAGIC or end > size:
            return
        content = file.read(length)
        if len(content) != length or zlib.crc32(content) != checksum:
            return
        yield end, content


def _items(content: bytes) -> Sequence[int] | None:
    """None if this worker can't read the record, as after a change of the Python environment."""
    try:
        items: Any = pickle.loads(content)[0]
    except Exception:
        return None
    return items  # type: ignore[no-any-return]
