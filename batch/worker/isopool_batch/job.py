# SPDX-License-Identifier: BSD-3-Clause
"""The driver's description of a job, and of a chunk of it."""

import functools
import hashlib
import json
import os
from dataclasses import dataclass
from typing import Any, Self

# The folder in the output that has everything but the parts.
JOB_FOLDER = "__job__"

# A planned chunk, as the driver keeps it: what its source needs to find the items, and how many they are ("rows").
Ref = dict[str, Any]

# CSV, and JSON lines with JSON arrays: the names of the files tell more.
PARQUET, JSONL, CSV, TAR, FILES, DATASET = "parquet", "jsonl", "csv", "tar", "files", "dataset"


@dataclass(frozen=True)
class Callee:
    """A function or class that user code provides: `name` of the Python file `path`, or the pickle `path`."""

    path: str
    name: str = ""  # empty: a pickle

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Of "/abs/app.py:name"; None if there is no text."""
        if not text:
            return None
        path, _, name = text.rpartition(":")
        if not path or not name:
            raise ValueError(f"{text!r} names no function: FILE.py:NAME is needed")
        return cls(path, name)

    def __str__(self) -> str:
        return f"{self.path}:{self.name}" if self.name else self.path


@dataclass(frozen=True)
class Input:
    kind: str
    paths: tuple[str, ...] = ()
    root: str = ""
    tables: bool = True  # of files: whether tables are items, too
    dataset: Callee | None = None
    partitions: tuple[str, ...] = ()  # the folders of each path that name columns: "year=2026/month=11"; or none

    @classmethod
    def parse(cls, values: dict[str, Any]) -> Self:
        kind = _one_of("the kind of the input", values["kind"], (PARQUET, JSONL, CSV, TAR, FILES, DATASET))
        if kind == DATASET:
            pickled = values.get("pickle")
            return cls(kind, dataset=Callee(pickled) if pickled else Callee(values["path"], values["name"]))
        paths = tuple(values["paths"])
        if not paths:
            raise ValueError("the job has no input: give files, folders or patterns")
        root = os.path.normpath(values["root"]) if kind == FILES else ""
        return cls(kind, paths, root, values.get("tables", True), partitions=tuple(values.get("partitions", ())))


@dataclass(frozen=True)
class Job:
    """See calls.py for the JSON form. model: None if the driver sets the model as an object."""

    model: Callee | None
    model_file: str  # its bytes identify the model; empty if the driver gave none
    input: Input
    preprocess: Callee | None
    postprocess: Callee | None
    column: str
    batch_size: int
    collate: str
    output: str
    format: str
    schema: str  # where the types of the columns are; empty: in the results
    driver: int
    identity: str  # SHA-256 of the description without the driver: equal for each run of the same job

    @classmethod
    @functools.lru_cache(maxsize=8)
    def parse(cls, text: str) -> Self:
        values = json.loads(text)
        model = values["model"]
        kind = _one_of("the kind of the model", model["kind"], ("file", "pickle", "object"))
        callee = None if kind == "object" else Callee(model["path"], model["name"] if kind == "file" else "")
        job = cls(
            model=callee,
            model_file=model.get("file", "") if callee is None else callee.path,
            input=Input.parse(values["input"]),
            preprocess=Callee.parse(values.get("preprocess", "")),
            postprocess=Callee.parse(values.get("postprocess", "")),
            column=values.get("column", ""),
            batch_size=values.get("batch_size", 0),
            collate=_one_of("collate", values.get("collate", "list"), ("list", "stack", "pad", "bucket")),
            output=values["output"],
            format=_one_of("the format", values.get("format", "parquet"), (PARQUET, JSONL)),
            schema=values.get("schema", ""),
            driver=values.get("driver", 0),
            identity=digest({key: value for key, value in values.items() if key != "driver"}),
        )
        if job.batch_size < 0:
            raise ValueError(f"the batch size is {job.batch_size}: 0 (no batches) or more is needed")
        if job.collate != "list" and job.batch_size == 0:
            raise ValueError(f"collate is {job.collate}, but there are no batches: set a batch size")
        if job.column and job.input.kind == FILES:
            raise ValueError(f"the column {job.column!r} is set, but the items are files, which have no columns")
        if job.schema and job.format != PARQUET:
            raise ValueError("a schema is given, but the format is JSON lines, which has no types of columns")
        return job


@dataclass(frozen=True)
class ChunkOrder:
    """A chunk as the driver orders it. items: the indexes of its items in `ref` without the quarantined ones."""

    number: int
    part: str
    ref: Ref
    items: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Self:
        values = json.loads(text)
        rows = range(values["ref"]["rows"])
        chosen = values.get("items")
        items = frozenset(rows) if chosen is None else frozenset(index for index in chosen if index in rows)
        return cls(values["number"], values["part"], values["ref"], items.difference(values.get("skip") or ()))


def canonical(value: object) -> str:
    """The JSON text of a value; equal values have equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def digest(value: object) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def _one_of(what: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"{what} is {value!r}: one of {', '.join(allowed)} is needed")
    return value
