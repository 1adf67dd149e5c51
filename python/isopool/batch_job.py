# SPDX-License-Identifier: BSD-3-Clause
"""Batch jobs: a model is called for each of many inputs, whatever the inputs do to it."""

import dataclasses
import fcntl
import hashlib
import io
import os
import pathlib
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Literal, TypeAlias

import cloudpickle  # type: ignore[import-untyped]

from isopool import _batch, program
from isopool._native import PoolOptions
from isopool.errors import BatchRefused

Collation: TypeAlias = Literal["list", "stack", "pad", "bucket"]
Format: TypeAlias = Literal["parquet", "jsonl"]
_COLLATIONS = ("list", "stack", "pad", "bucket")
_FORMATS = ("parquet", "jsonl")


@dataclasses.dataclass(frozen=True)
class BatchProgress:
    """How far a run is. `done` and `failed` count those of earlier runs in the folder, too."""

    items: int
    done: int  # have a result
    failed: int  # were set aside
    done_now: int  # have got a result in this run
    restarts: int  # workers that were replaced
    chunks: int
    chunks_done: int
    memory: int  # bytes that the workers use
    elapsed: float  # seconds


@dataclasses.dataclass(frozen=True)
class BatchFailure:
    """An item that was set aside: it has no result."""

    id: str
    reason: Literal["crashed", "exited", "memory", "timeout", "raised"]
    phase: str  # "read", "preprocess", "model", "postprocess", "write", or ""
    signal: int  # of "crashed"
    exit_code: int  # of "exited"
    type: str  # the exception's class, of "raised" and "memory"
    message: str
    traceback: str
    crash_log: str  # of a worker that died: its last output, and its Python stack
    attempts: int


@dataclasses.dataclass(frozen=True)
class BatchSummary:
    """How a run ended: "all right", "finished with quarantine", or "stopped: " and why."""

    end: str
    message: str
    progress: BatchProgress


def batch(
    model: str | Callable[..., Any],
    inputs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Any,
    output: str | os.PathLike[str],
    *,
    files: bool = False,
    preprocess: str = "",
    postprocess: str = "",
    column: str = "",
    batch_size: int = 0,
    collate: Collation = "list",
    format: Format | None = None,
    schema: Any = None,
    timeout: float | timedelta | None = None,
    start_timeout: float | timedelta | None = None,
    retries: int = 1,
    max_failures: int | None = None,
    max_failure_share: float | None = None,
    chunk_items: int = 0,
    shard: int = 0,
    shards: int = 1,
    update: bool = False,
    force: bool = False,
    workers: int | None = None,
    options: PoolOptions | None = None,
    progress: Callable[[BatchProgress], object] | None = None,
    failure: Callable[[BatchFailure], object] | None = None,
) -> BatchSummary:
    """Calls the model for each input and writes the results into the folder `output`, as `isopool batch` does.

    `model` is a text as the command takes it ("app.py:embed", "model.onnx"), or a function or class of this program,
    which goes to the workers by value (cloudpickle); of a class each worker makes one instance. `inputs` are paths of
    tables (Parquet, JSON lines, CSV, tar), of other files, folders or glob patterns, "app.py:DATASET", a data frame of
    pandas or Polars or a pyarrow.Table, whose rows are the items, or a map-style dataset: an object with `__len__` and
    `__getitem__` that is no list of paths, by value, too. docs/batch.md describes the other arguments, isopool/batch.h
    every detail. `timeout` is in seconds, for one item, `start_timeout` for making the model. `schema` has the types of
    the columns: a pyarrow.Schema, a Parquet file, or "app.py:NAME".

    `progress` is called ten times per second on this thread, `failure` for each item that is set aside, on others. An
    exception that they raise ends the run, as KeyboardInterrupt does, and is raised when the items in flight are done.
    What is done stays: the same call goes on there.

    Raises BatchRefused if the job is wrong, the model can't be loaded, or the folder holds another job or is in use.
    """
    if update and _table_of(inputs) is not None:
        raise BatchRefused("update is for files: give the new rows of the data frame in a job of their own")
    folder = os.fspath(output)
    stored = _StoredObjects(folder)
    job = {
        "model": model if isinstance(model, str) else stored.path_of(model, "model"),
        "inputs": _inputs(inputs, stored),
        "files": files,
        "output": folder,
        "preprocess": preprocess,
        "postprocess": postprocess,
        "column": column,
        "batch_size": batch_size,
        "collation": _choice("collate", collate, _COLLATIONS),
        "format": 0 if format is None else 1 + _choice("format", format, _FORMATS),
        "schema": _schema(schema, stored),
        "timeout": timeout,
        "start_timeout": start_timeout,
        "retries": retries,
        "max_failures": max_failures,
        "max_failure_share": max_failure_share,
        "chunk_items": chunk_items,
        "shard": shard,
        "shards": shards,
        "update": update,
        "force": force,
    }
    calls = _on(progress, BatchProgress), _on(failure, BatchFailure)
    try:
        return _summary(_batch.run(job, _options(options, workers), *calls))
    except BatchRefused:
        stored.forget_new()
        raise


def retry_batch(
    output: str | os.PathLike[str],
    *,
    workers: int | None = None,
    options: PoolOptions | None = None,
    progress: Callable[[BatchProgress], object] | None = None,
    failure: Callable[[BatchFailure], object] | None = None,
) -> BatchSummary:
    """Runs the items that the folder `output` has set aside again, with the present code of the model's file.

    As `isopool batch retry`. A model that went by value is the one of the run. Raises what batch() raises.
    """
    calls = _on(progress, BatchProgress), _on(failure, BatchFailure)
    return _summary(_batch.retry(os.fspath(output), _options(options, workers), *calls))


def _digest(contents: bytes) -> str:
    return hashlib.sha256(contents).hexdigest()[:16]


class _StoredObjects:
    """Pickles in the job's folder of the output, by their contents: another job's, which may be running, stay as they are."""

    def __init__(self, folder: str) -> None:
        self._folder = pathlib.Path(folder).resolve() / "__job__"
        self._new: list[pathlib.Path] = []

    def path_of(self, thing: object, name: str) -> str:
        return self.keep(cloudpickle.dumps(thing, 5), name, "pkl")

    def keep(self, contents: bytes, name: str, ending: str) -> str:
        """Stores the contents; returns the path of their file."""
        return self._keep(contents, f"{name}-{_digest(contents)}.{ending}")

    def keep_table(self, contents: bytes) -> str:
        """The same. IDs have the file's name, so that has no digest."""
        return self._keep(contents, f"input-{_digest(contents)}/table.parquet")

    def _keep(self, contents: bytes, name: str) -> str:
        path = self._folder / name
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            aside = path.with_suffix(f".{os.getpid()}.aside")
            aside.write_bytes(contents)
            aside.rename(path)
            self._new.append(path)
        return str(path)

    def forget_new(self) -> None:
        """Removes what a refused job has stored, unless a run uses the folder, which may have the same function."""
        for lock in self._folder.glob("lock*"):
            with open(lock) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except OSError:
                    return
        for path in self._new:
            path.unlink(missing_ok=True)
            if path.parent != self._folder:
                path.parent.rmdir()


def _inputs(inputs: Any, stored: _StoredObjects) -> list[str]:
    if isinstance(inputs, (str, os.PathLike)):
        return [os.fspath(inputs)]
    if isinstance(inputs, (list, tuple)) and inputs and all(isinstance(each, (str, os.PathLike)) for each in inputs):
        return [os.fspath(each) for each in inputs]
    table = _table_of(inputs)
    if table is not None:
        return [stored.keep_table(_parquet(table))]
    if not (hasattr(inputs, "__len__") and hasattr(inputs, "__getitem__")):
        raise TypeError(f"inputs of type {type(inputs).__name__}: give paths, or a dataset with __len__ and __getitem__")
    return [stored.path_of(inputs, "input")]


def _table_of(inputs: Any) -> Any:
    """The pyarrow.Table of a data frame; None if the inputs are none."""
    package = type(inputs).__module__.partition(".")[0]
    kind = type(inputs).__name__
    if package == "pandas" and kind == "DataFrame":
        return _table_of_pandas(inputs)
    if package == "polars" and kind == "DataFrame":
        for name, each in inputs.schema.items():
            if "Object" in str(each):
                raise TypeError(f"the data frame's column {name!r} has Python objects (Object): a table can't have them")
        return inputs.to_arrow()
    if package == "pandas" and kind == "Series":
        raise TypeError("inputs of type Series, whose items are found by labels: give what its to_frame() returns")
    if package == "polars" and kind == "LazyFrame":
        raise TypeError("inputs of type LazyFrame: give what its collect() returns")
    if package == "pyarrow" and kind == "RecordBatch":
        import pyarrow  # type: ignore[import-untyped]

        return pyarrow.Table.from_batches([inputs])
    if package == "pyarrow" and kind == "Table":
        return inputs
    return None


def _table_of_pandas(frame: Any) -> Any:
    import pyarrow

    for name in frame.columns:
        if not isinstance(name, str):
            raise TypeError(f"the data frame's column {name!r} is not named by a text: give frame.rename(columns=str)")
    table = pyarrow.Table.from_pandas(frame)
    # It makes NaN null.
    for place, (name, kind) in enumerate(frame.dtypes.items()):
        if type(kind).__module__.partition(".")[0] == "numpy" and kind.kind == "f":
            numbers = pyarrow.array(frame.iloc[:, place].to_numpy(), from_pandas=False)
            table = table.set_column(place, name, numbers)
    return table.replace_schema_metadata(None)


def _parquet(table: Any) -> bytes:
    import pyarrow.parquet  # type: ignore[import-untyped]

    file = io.BytesIO()
    pyarrow.parquet.write_table(table, file)
    return file.getvalue()


def _schema(schema: Any, stored: _StoredObjects) -> str:
    if schema is None:
        return ""
    if isinstance(schema, (str, os.PathLike)):
        return os.fspath(schema)
    import pyarrow

    if not isinstance(schema, pyarrow.Schema):
        raise TypeError(f"schema of type {type(schema).__name__}: give a pyarrow.Schema, a file or app.py:NAME")
    return stored.keep(_parquet(schema.empty_table()), "schema", "parquet")


def _choice(name: str, value: str, known: tuple[str, ...]) -> int:
    if value not in known:
        raise ValueError(f"{name} is {value!r}: choose {', '.join(known)}")
    return known.index(value)


def _options(options: PoolOptions | None, workers: int | None) -> PoolOptions:
    chosen = PoolOptions() if options is None else options
    if workers is not None:
        chosen.workers = workers
    if not chosen.python_paths:
        chosen.python_paths = program.python_paths()
    return chosen


def _on(call: Callable[[Any], object] | None, kind: type[Any]) -> Callable[[dict[str, Any]], object] | None:
    return None if call is None else lambda values: call(kind(**values))


def _summary(values: dict[str, Any]) -> BatchSummary:
    return BatchSummary(values["end"], values["message"], BatchProgress(**values["progress"]))
