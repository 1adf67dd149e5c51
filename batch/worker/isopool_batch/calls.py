# SPDX-License-Identifier: BSD-3-Clause
"""What the driver of a batch job calls in its workers. Arguments and results are JSON text and integers.

A job is an object, the same text in each call:

    {"model": {"kind": "file", "path": "/abs/app.py", "name": "embed"}      a function or class
            | {"kind": "pickle", "path": "/abs/model.pkl"}                  a callable or class, by cloudpickle
            | {"kind": "object", "file": "/abs/model.pt"},                  set_model() has it
     "input": {"kind": "parquet" | "jsonl", "paths": [...]}
            | {"kind": "files", "paths": [files, folders, patterns], "root": "/abs", "tables": whether they may be some}
            | {"kind": "dataset", "path": "/abs/app.py", "name": "data"} | {"kind": "dataset", "pickle": "/abs/in.pkl"},
     "preprocess": "" | "/abs/app.py:name", "postprocess": the same,
     "column": "" | the column that the function gets instead of the row,
     "batch_size": 0, for a function of one item, or the number of items of a batch,
     "collate": "list" | "stack" | "pad" | "bucket",
     "output": "/abs/out", "format": "parquet" | "jsonl",
     "schema": "" | "/abs/file.parquet" | "/abs/app.py:name", the types of the columns,
     "driver": process ID}

A chunk is {"number": 123, "part": "part-000123.parquet", "ref": a chunk of Planner.chunks(), "skip": [items to leave
out], "items": [the only items to compute], optional}.
"""

import json
import os
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from isopool_batch import crash_points, models, schema
from isopool_batch.chunk import Chunk
from isopool_batch.job import ChunkOrder, Job
from isopool_batch.memory_cap import MemoryCap
from isopool_batch.pipeline import Pipeline
from isopool_batch.planner import Planner
from isopool_batch.sources import Source, source_of

# A worker of a shared supervisor may serve several drivers; the models of earlier ones are freed.
_MOST_JOBS = 4


class _PreparedJob:
    """A job's part that a worker makes once: callables and the opened input."""

    def __init__(self, text: str) -> None:
        self.job = Job.parse(text)
        self.model: Callable[..., Any] | None = None
        self._pipeline: Pipeline | None = None
        self._source: Source | None = None
        self.cap = MemoryCap()

    def pipeline(self) -> Pipeline:
        if self._pipeline is None:
            if self.model is None:
                if self.job.model is None:
                    raise ValueError("the job's model is an object, which set_model() has to set first")
                self.model = models.make(self.job.model)
            self._pipeline = Pipeline(self.job, self.model)
            # What the model needs itself is no growth.
            self.cap = MemoryCap()
        return self._pipeline

    def source(self) -> Source:
        if self._source is None:
            self._source = source_of(self.job)
        return self._source


_jobs: OrderedDict[str, _PreparedJob] = OrderedDict()


def planner(job: str) -> Planner:
    return Planner(Job.parse(job))


def set_model(job: str, model: object) -> None:
    """Sets the model of a job of kind "object" in this worker."""
    if not callable(model):
        raise TypeError(f"the model is of class {type(model).__qualname__}, which can't be called")
    _prepared(job).model = model


def prepare(job: str) -> None:
    """Makes the job's model, preprocess and postprocess, once per worker. Raises what user code raises."""
    _prepared(job).pipeline()


def open_chunk(job: str, chunk: str) -> Chunk:
    """Recovers what an earlier worker computed of the chunk. Raises OSError if the output can't be written."""
    prepared = _prepared(job)
    crash_points.set_driver(prepared.job.driver)
    return Chunk(prepared.job, ChunkOrder.parse(chunk), prepared.pipeline(), prepared.source(), prepared.cap)


def freeze_schema(job: str, fingerprint: str, counts: list[str]) -> None:
    """Sets the types of the job's columns, before its first part: the given ones, or those of the counts of chunks.

    counts: of Chunk.finish(). If the job has them already, they stay. Raises OSError, and ValueError if the given ones
    are wrong.
    """
    parsed = Job.parse(job)
    crash_points.set_driver(parsed.driver)
    schema.freeze(parsed.output, fingerprint, schema.given(parsed.schema) if parsed.schema else schema.decided(counts))


def leave() -> None:
    """Ends this worker, whose memory is used up: another one takes its place."""
    os._exit(0)


def _prepared(text: str) -> _PreparedJob:
    prepared = _jobs.get(text)
    if prepared is None:
        prepared = _jobs[text] = _PreparedJob(text)
        while len(_jobs) > _MOST_JOBS:
            _jobs.popitem(last=False)
    else:
        _jobs.move_to_end(text)
    return prepared
