# SPDX-License-Identifier: BSD-3-Clause
"""The types of a job's columns. All its Parquet parts have them, so that every reader takes the parts as one table.

They are in a file of the output folder, which appears once, before the first part: {"job": the job's fingerprint,
"columns": [[name, type], ...]}. They are those of the results of some chunks at fixed places of the plan, or given.
"""

import json
import os
from collections import Counter
from collections.abc import Sequence
from typing import Any, BinaryIO

from isopool_batch import column_types, columns, durable, models, packages
from isopool_batch.columns import Schema
from isopool_batch.job import JOB_FOLDER, Callee
from isopool_batch.results import Row

FILE = os.path.join(JOB_FOLDER, "schema.json")
_ATTEMPTS = 100


def of_output(folder: str) -> Schema | None:
    """None: not known yet. Raises ValueError if the file is damaged."""
    path = os.path.join(folder, FILE)
    try:
        with open(path, encoding="utf-8") as file:
            return dict(column_types.parsed(file.read())["columns"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path} is damaged: remove it, if no part exists, or start anew with --force") from error


def counted(rows: Sequence[Row]) -> str:
    """How many values of each type each column of these rows has, as JSON for decided()."""
    return json.dumps({name: list(counts.items()) for name, counts in columns.types_in(rows).items()})


def decided(counts: Sequence[str]) -> Schema:
    """The types for the rows of several chunks."""
    found: dict[str, Counter[Any]] = {}
    for text in counts:
        for name, types in column_types.parsed(text).items():
            found.setdefault(name, Counter()).update(dict(types))
    return columns.schema_of(found)


def given(source: str) -> Schema:
    """Of a Parquet file, or of "FILE.py:NAME", a pyarrow.Schema or a function that returns one. Raises ValueError."""
    pyarrow = packages.pyarrow()
    path, _, name = source.rpartition(":")
    if path.endswith(".py"):
        made = models.load(Callee(path, name))
        made = made() if callable(made) else made
    else:
        try:
            made = packages.parquet().read_schema(source)
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"the schema: {source} is no Parquet file that can be read: {error}") from None
    if not isinstance(made, pyarrow.Schema):
        raise ValueError(f"the schema: {source} is of class {type(made).__qualname__}, not a pyarrow.Schema")
    found: Schema = {}
    for field in made:
        if field.name in found:
            raise ValueError(f"the schema: {source} has two columns {field.name!r}")
        try:
            found[field.name] = column_types.of_arrow(field.type)
        except ValueError as error:
            raise ValueError(f"the schema: column {field.name!r} of {source}: {error}") from None
    if "id" not in found:
        raise ValueError(f'the schema: {source} has no column "id", which each part has')
    return found


def freeze(folder: str, job: str, schema: Schema) -> None:
    """Makes the file. If another run of the job has made it meanwhile, that one's counts. Raises OSError."""
    text = json.dumps({"job": job, "columns": list(schema.items())})

    def fill(file: BinaryIO) -> None:
        file.write(text.encode())

    path = os.path.join(folder, FILE)
    for attempt in range(_ATTEMPTS):
        try:
            durable.publish(path, fill, "schema")
            return
        except FileExistsError:
            return
        except FileNotFoundError:
            # The run of another shard that begins removes what this one has not published yet.
            if attempt == _ATTEMPTS - 1:
                raise
