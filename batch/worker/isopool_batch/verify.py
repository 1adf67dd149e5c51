# SPDX-License-Identifier: BSD-3-Clause
"""Compares the parts of a job with its plan and with its inputs, in a process of its own.

    python -m isopool_batch.verify FOLDER JOB PLANNED STATE

FOLDER has this package and is removed; JOB is the job of calls.py with the present inputs, PLANNED with those of the plan.
STATE is a file in FOLDER: {"chunks": [{"number",
"part", "done", "rows", "bytes", "ref", "failed": [indexes of items that were set aside]}], "problems": [texts]}, what
the journals say, and what the driver has found. The driver starts it: batch/runner/inline_run.cc.

Prints each problem on a line, and last what was compared. Exits with 1 if there is a problem. The model does not run.
"""

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from isopool_batch import inline_run, sinks
from isopool_batch.growth import Group, Known, groups
from isopool_batch.job import DATASET, Job
from isopool_batch.sources import Source, source_of

# So many IDs are named for one part.
_MOST_NAMED = 3


@dataclass
class Planned(Known):
    """A chunk with what the journal says of its part."""

    part: str
    rows: int
    bytes: int

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Planned":
        known = Known.parse(values)
        return cls(known.number, known.done, known.ref, known.failed, values["part"], values["rows"], values["bytes"])


def problems(present: Job, job: Job, chunks: list[Planned]) -> Iterator[str]:
    """One line each. job: with the inputs of the plan."""
    source = source_of(job)
    known = {each.part for each in chunks if each.done and each.rows}
    ending = ".jsonl" if job.format == "jsonl" else ".parquet"
    for name in sorted(os.listdir(job.output)):
        if name.startswith("part-") and name.endswith(ending) and name not in known:
            yield f"{name} is a part that no plan names"
    unfinished = sum(not each.done for each in chunks)
    if unfinished:
        yield f"{unfinished} of {len(chunks)} chunks are not done: run the job again"
    for group in groups(chunks):
        found: Counter[str] = Counter()
        for each in group.chunks:
            assert isinstance(each, Planned)
            if each.done and each.rows:
                try:
                    found.update(_ids_of(job, each))
                except (OSError, ValueError) as error:
                    yield str(error)
        if group.settled:
            yield from _differences(source, group, found)
    yield from _changes(present, job, chunks)


def _ids_of(job: Job, chunk: Planned) -> list[str]:
    path = os.path.join(job.output, chunk.part)
    size = os.stat(path).st_size
    if size != chunk.bytes:
        raise ValueError(f"{chunk.part} has {size} bytes, and the run wrote {chunk.bytes}")
    ids = sinks.ids_in(path, job.format)
    if len(ids) != chunk.rows:
        raise ValueError(f"{chunk.part} has {len(ids)} rows that can be read, and the run wrote {chunk.rows}")
    return ids


def _differences(source: Source, group: Group, found: Counter[str]) -> Iterator[str]:
    """Of a group that is done: its parts have one row for each of its items that was not set aside, and no other."""
    ref = group.ref
    parts = " and ".join(each.part for each in group.chunks if isinstance(each, Planned))
    if ref.get("file", 0) == -1:
        return  # its input was removed
    items = source.open(ref)
    change = items.change()
    if change:
        yield f"{parts}: {change}"
        return
    absent = {*ref.get("gone", ()), *group.failed}
    expected: Counter[str] = Counter()
    for index in range(ref["rows"]):
        if index not in absent:
            try:
                expected[str(items.read(index)[0])] += 1
            except Exception as error:
                yield f"{parts}: {items.fallback_id(index)} can't be read: {error}"
    for what, these in (("lacks", expected - found), ("has in excess", found - expected)):
        if these:
            names = [*these.elements()]
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            yield f"{parts} {what} {', '.join(names[:_MOST_NAMED])}{more}"


def _changes(present: Job, job: Job, chunks: list[Planned]) -> Iterator[str]:
    source = source_of(present)
    if job.input.kind == DATASET:
        planned = {(each.ref["row"], each.ref["rows"]) for each in chunks}
        if (items := sum(rows for _, rows in planned)) != source.count():
            yield f"the dataset has {source.count()} items, and the plan {items}"
        return
    growth = source.grow(job.input, list(chunks))
    for names, what in ((growth.new, "is new"), (growth.changed, "has changed")):
        for name in names[:_MOST_NAMED]:
            yield f"the input {name} {what} since the run: do it with --update"
        if len(names) > _MOST_NAMED:
            yield f"the same of {len(names) - _MOST_NAMED} more inputs"


def main(folder: str, job_text: str, planned_text: str, state_file: str) -> int:
    with open(state_file, encoding="utf-8") as file:
        state = json.load(file)
    inline_run.import_all(folder)
    shutil.rmtree(folder)
    chunks = [Planned.of(each) for each in state["chunks"]]
    found = 0
    for problem in [*state["problems"], *problems(Job.parse(job_text), Job.parse(planned_text), chunks)]:
        print(problem, flush=True)
        found += 1
    rows = sum(each.rows for each in chunks if each.done)
    failed = sum(len(each.failed) for each in chunks)
    parts = sum(each.done and each.rows > 0 for each in chunks)
    compared = f"{rows} results in {parts} parts, {failed} items set aside"
    print(f"{found} problems: {compared}" if found else f"verified: {compared}; each is that of its input")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
