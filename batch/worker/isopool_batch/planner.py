# SPDX-License-Identifier: BSD-3-Clause
"""Counts the items of a job, and divides them into chunks."""

import itertools
import json
from collections.abc import Iterator

from isopool_batch import fingerprint
from isopool_batch.growth import Known
from isopool_batch.job import Input, Job, Ref
from isopool_batch.sources import source_of


class Planner:
    """Raises a ValueError of one line if the job's files or input are absent, empty or unreadable."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._source = source_of(job)
        self._rows = 0
        self._next = 0  # the chunk that the iterator gives next
        self._refs: Iterator[Ref] = iter(())
        self._known: list[Known] = []

    def summary(self) -> str:
        """{"items": n, "fingerprint": {"model": ..., "arguments": ..., "input": ...}} as JSON."""
        return json.dumps(
            {
                "items": self._source.count(),
                "fingerprint": {
                    "model": fingerprint.of_model(self._job),
                    "arguments": fingerprint.of_arguments(self._job),
                    "input": self._source.fingerprint(),
                },
            }
        )

    def know(self, chunks: str) -> None:
        """More chunks of the present plan, as a JSON list of {"number": n, "done": b, "ref": {}, "failed": [indexes]}."""
        self._known += map(Known.parse, json.loads(chunks))

    def grow(self, before: str) -> str:
        """Growth.text() as JSON; `before` is the input of the job of the plan. chunks() then has what the plan lacks."""
        return json.dumps(self._source.grow(Input.parse(json.loads(before)), self._known).text())

    def chunks(self, rows: int, first: int, count: int) -> str:
        """The chunks number first to first + count - 1, of at most so many rows, as a JSON list; fewer at the end.

        A call for the chunks behind those of the last call goes on where that stopped.
        """
        if rows < 1 or first < 0:
            raise ValueError(f"chunks of {rows} rows from number {first} on are impossible")
        if rows != self._rows or first != self._next:
            self._refs = itertools.islice(self._source.refs(rows), first, None)
            self._rows = rows
            self._next = first
        refs = list(itertools.islice(self._refs, count))
        self._next += len(refs)
        return json.dumps(refs)
