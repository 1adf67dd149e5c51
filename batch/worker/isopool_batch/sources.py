# SPDX-License-Identifier: BSD-3-Clause
"""Where the items of a job come from."""

import os
import stat
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Protocol

from isopool_batch import values
from isopool_batch.growth import Growth, Known
from isopool_batch.job import CSV, DATASET, FILES, JOB_FOLDER, JSONL, TAR, Input, Job, Ref


class Items(Protocol):
    """The items of one chunk, by their index in it. Nothing is read before the first call of read()."""

    def read(self, index: int) -> tuple[Any, Any]:
        """The item's ID, of its own type, and the item. Each call makes the item anew: user code may change it."""

    def fallback_id(self, index: int) -> str:
        """The ID of an item that has none itself, or can't be read."""

    def change(self) -> str:
        """Why these are not the items that were planned; empty: they are. Cheap if nothing was written meanwhile."""


class Source(Protocol):
    """An input. The methods for planning raise a ValueError of one line if the input is absent, empty or unreadable."""

    def count(self) -> int: ...

    def fingerprint(self) -> str:
        """Differs if the input has changed."""

    def refs(self, rows: int) -> Iterator[Ref]:
        """The chunks in order, each of at most so many items."""

    def open(self, ref: Ref) -> Items: ...

    def grow(self, before: Input, known: list[Known]) -> Growth:
        """Compares with the chunks of a plan of the inputs before. From now on refs() has what the plan lacks."""


def source_of(job: Job) -> Source:
    # Imported here: a worker loads only what its job needs.
    from isopool_batch.tables import Tables

    if job.input.kind in (JSONL, CSV):
        from isopool_batch.text_source import TextSource

        return TextSource(Tables(job.input), job.column)
    if job.input.kind == TAR:
        from isopool_batch.tar_source import TarSource

        return TarSource(Tables(job.input), job.column)
    if job.input.kind == FILES:
        from isopool_batch.file_source import FileSource

        return FileSource(job.input.paths, job.input.root, job.input.tables)
    if job.input.kind == DATASET:
        from isopool_batch.dataset_source import DatasetSource

        assert job.input.dataset is not None
        return DatasetSource(job.input.dataset, job.column, os.path.join(job.output, JOB_FOLDER))
    from isopool_batch.parquet_source import ParquetSource

    return ParquetSource(Tables(job.input), job.column)


def labels(paths: Sequence[str]) -> list[str]:
    """A short name of each file, for IDs: its own name, or its path in the common folder if names repeat."""
    names = [os.path.basename(path) for path in paths]
    if len(set(names)) == len(names):
        return names
    common = os.path.commonpath([os.path.dirname(path) for path in paths])
    return [os.path.relpath(path, common) for path in paths]


def identified(row: Any, fallback: str, column: str) -> tuple[Any, Any]:
    """The row's ID as a value for a part file, and the row or its value of the column."""
    identity = values.storable(row.get("id")) if isinstance(row, dict) else None
    if column:
        if not isinstance(row, dict):
            raise TypeError(f"{fallback} is of type {type(row).__name__}: the column {column!r} needs a row of columns")
        if column not in row:
            raise KeyError(f"{fallback} has no column {column!r}; it has {', '.join(map(str, row)) or 'none'}")
        row = row[column]
    return fallback if identity is None else identity, row


def is_utf8(text: str) -> bool:
    """False for text of bytes that are not: Python has these as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def opened(path: str, buffering: int = -1) -> BinaryIO:
    """A regular file, for reading. Others are refused: a FIFO would block, a device may have no end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise not_regular(path)
    return os.fdopen(descriptor, "rb", buffering)


Stamp = tuple[int, int, int]


def stamp_of(path: str) -> Stamp | None:
    """Differs if the file was written meanwhile, or is another one; None if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def changed(path: str) -> str:
    return f"{path} has changed since the run has planned its items"


def not_regular(path: str) -> ValueError:
    return ValueError(f"{path} is not a regular file: only regular files can be read")


def unreadable(path: str, error: Exception) -> ValueError:
    reason = getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0]
    return ValueError(f"{path} can't be read: {reason}")


def no_items(paths: Sequence[str]) -> ValueError:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return ValueError(f"the input has no items: {paths[0]}{more}")
