# SPDX-License-Identifier: BSD-3-Clause
"""A chunk of a job: a range of items whose rows become one part file."""

import contextlib
import errno
import functools
import json
import os
import sys
from types import ModuleType
from typing import Any, BinaryIO

from isopool_batch import columns, durable, failures, schema, sinks, spill
from isopool_batch.columns import Schema
from isopool_batch.failures import Progress
from isopool_batch.job import JOB_FOLDER, JSONL, ChunkOrder, Job, canonical
from isopool_batch.memory_cap import MemoryCap
from isopool_batch.pipeline import Pipeline
from isopool_batch.results import Row
from isopool_batch.sources import Source
from isopool_batch.spill import Spill

# Spills of unfinished chunks are in this folder of the job's.
_WORK = "work"
_ATTEMPTS = 100


class Chunk:
    """A process that opens a chunk takes it from the one that had it open. Indexes of items are those of the ref."""

    def __init__(self, job: Job, order: ChunkOrder, pipeline: Pipeline, source: Source, cap: MemoryCap) -> None:
        self._cap = cap
        self._order = order
        self._pipeline = pipeline
        self._items = source.open(order.ref)
        self._format = job.format
        self._output = job.output
        self._part = os.path.join(job.output, order.part)
        identity = canonical([job.identity, order.number, order.part, order.ref])
        self._spill = _spill_in(os.path.join(job.output, JOB_FOLDER, _WORK), f"{order.number:06d}.spill", identity)
        # Items whose rows the spill has; those that the driver has left out since don't count.
        self._done = self._spill.recovered & order.items
        self._finished: str | None = None
        self._noted = False  # what this worker has read
        if self._spill.recovered:
            durable.sweep(self._part)

    def prepare(self) -> str:
        """Opens the input, whose time is none of the first item's. Returns why it is not the planned one, or nothing."""
        return self._items.change()

    def finished(self) -> str:
        """The recorded items as a JSON list of [first, count]."""
        ranges: list[list[int]] = []
        for item in sorted(self._done):
            if ranges and sum(ranges[-1]) == item:
                ranges[-1][1] += 1
            else:
                ranges.append([item, 1])
        return json.dumps(ranges)

    def run(self, first: int, count: int, call: int = 0) -> str:
        """Computes and records the rows of these items, `call` items after the other (0: all together).

        Of each call all rows are recorded or, after a failure, none. Returns "" or the failure of the first call that
        failed as JSON, see failures.describe(), with that call's "first" and "count"; the calls before it are recorded,
        those behind it are not made. {"reason": "full", "first": ...} if the worker has used up most of its memory
        before that item: it should be replaced. {"reason": "changed", "message": ...} if the input is not the planned
        one. Items that are left out or recorded are passed over. Raises OSError if
        the spill can't be written.
        """
        end = first + count
        for begin in range(first, end, call or count):
            if self._cap.is_near():
                return json.dumps({"reason": "full", "first": begin})
            failure = self._run_call(begin, min(call or count, end - begin))
            if failure is not None:
                return failure
        # A dataset notes what was read: now, for the case that this worker dies.
        change = "" if self._noted else self._items.change()
        self._noted = True
        return json.dumps({"reason": "changed", "message": change}) if change else ""

    def _run_call(self, first: int, count: int) -> str | None:
        indexes = [item for item in range(first, first + count) if item in self._order.items and item not in self._done]
        if not indexes:
            return None
        progress = Progress()
        try:
            with _inference():
                rows = self._pipeline.rows(self._items, indexes, progress)
            progress.phase, progress.item = failures.WRITE, None
            record = spill.packed(indexes, rows)
        except BaseException as error:
            item = indexes[0] if progress.item is None and len(indexes) == 1 else progress.item
            return failures.describe(error, progress.phase, item, first, count, self._cap.has_room())
        if not self._spill.is_open():
            item = indexes[0] if len(indexes) == 1 else None
            closed = OSError(errno.EBADF, "its code has closed files that are not its own")
            return failures.describe(closed, failures.MODEL, item, first, count, self._cap.has_room(), broken=True)
        self._spill.append(record)
        self._done.update(indexes)
        return None

    def identify(self, item: int) -> str:
        """The item's ID as JSON. Reads the item for it; if that fails, the ID is that of its place."""
        try:
            identity = self._items.read(item)[0]
            return json.dumps(identity if type(identity) is int else failures.printable(str(identity)))
        except BaseException:
            return json.dumps(failures.printable(self._items.fallback_id(item)))

    def finish(self) -> str:
        """Writes the part file and removes the spill; returns {"rows": n, "bytes": size} as JSON.

        Without rows there is no part file, and one that exists stays. Else writes nothing and returns:

        - {"types": schema.counted() of the rows} if the job needs a schema and has none yet. The chunk can be opened
          again when it has one.
        - {"changed": reason} if the input is not the planned one any more.
        - {"misfits": [[item, reason], ...]} if rows don't fit into the schema. The chunk can be opened again without
          these items.

        Raises OSError, also if another process has opened the chunk meanwhile, and ValueError if Parquet can't store
        the rows.
        """
        if self._finished is None:
            # Rows of this process and recovered ones take the same way, so the bytes are the same.
            if not self._spill.is_current():
                raise OSError(errno.ESTALE, "another run goes on with the chunk", self._part)
            if change := self._items.change():
                return json.dumps({"changed": change})
            recorded = self._spill.rows()
            items = sorted(self._done)
            rows = [recorded[item] for item in items]
            known = schema.of_output(self._output) if rows and self._format != JSONL else {}
            if known is None:
                return json.dumps({"types": schema.counted(rows)})
            try:
                size = self._publish(rows, known) if rows else 0
            except ValueError:
                misfits = columns.misfits(rows, known) if known else {}
                if not misfits:
                    raise
                return json.dumps({"misfits": [[items[index], reason] for index, reason in misfits.items()]})
            self._spill.remove()
            self._finished = json.dumps({"rows": len(rows), "bytes": size})
        return self._finished

    def _publish(self, rows: list[Row], known: Schema) -> int:
        def fill(file: BinaryIO) -> None:
            if self._format == JSONL:
                sinks.write_jsonl(rows, file)
            else:
                sinks.write_parquet(rows, known, file)

        try:
            return durable.publish(self._part, fill, "part")
        except FileExistsError:
            # A process that died before the driver knew of the part has written it. Of a model whose results differ
            # from call to call it has others.
            if sinks.ids_in(self._part, self._format) != [str(row["id"]) for row in rows]:
                raise
            return os.path.getsize(self._part)


def _spill_in(work: str, name: str, identity: str) -> Spill:
    for attempt in range(_ATTEMPTS):
        try:
            os.makedirs(work, exist_ok=True)
            return Spill(os.path.join(work, name), identity)
        except FileNotFoundError:
            # Another shard has ended and removed the folder, which was empty.
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _inference() -> contextlib.AbstractContextManager[Any]:
    """torch without gradients, if user code has imported torch."""
    torch = sys.modules.get("torch")
    return _without_gradients(torch) if torch is not None else contextlib.nullcontext()


@functools.cache
def _without_gradients(torch: ModuleType) -> contextlib.AbstractContextManager[Any]:
    # One object for all calls: making it takes a microsecond.
    made: contextlib.AbstractContextManager[Any] = torch.inference_mode()
    return made
