# SPDX-License-Identifier: BSD-3-Clause
"""Runs Python code in crash-isolated worker processes, from a Python program.

A Pool loads models, and calls them in its workers:

    pool = isopool.Pool(2)
    model = pool.load("model.pt", pickle=("model", "model.pkl"))
    y = model(x)

An Executor is a concurrent.futures.Executor on such workers, which one dead worker does not break:

    with isopool.Executor() as executor:
        results = list(executor.map(function, items))

A batch job calls a model for many inputs, and sets those aside that crash, hang or raise:

    isopool.batch("app.py:embed", "texts.parquet", "out")

InterpreterManager has multipy's interface: a session on a worker gives handles (Obj) to objects there.
Each call releases the GIL while it waits, and any thread may use any object. If a worker dies, its
call raises WorkerLost and the supervisor replaces the worker; if the supervisor dies, every use
raises SupervisorLost: make a new pool. isopool.errors has all exceptions.
"""

import pathlib
import platform
import sys
import typing

# libisopool uses this process's libtorch, so torch must be imported first.
import torch

from isopool import _build

if platform.python_version_tuple()[:2] != tuple(_build.PYTHON_VERSION.split(".")):
    raise ImportError(
        f"isopool was built for Python {_build.PYTHON_VERSION}, but this is "
        f"{platform.python_version()}: build it with -DISOPOOL_PYTHON_EXECUTABLE={sys.executable}"
    )
_torch_version = torch.__version__.split("+")[0]
if _torch_version.split(".")[:2] != _build.TORCH_SERIES.split("."):
    raise ImportError(
        f"isopool was built with torch {_build.TORCH_VERSION}, but this Python has {_torch_version} (in "
        f"{pathlib.Path(torch.__file__).parent}): {sys.executable} -m pip install 'torch=={_build.TORCH_SERIES}.*', or "
        "build isopool with this version"
    )

from isopool._native import (  # noqa: E402
    InterpreterManager,
    InterpreterSession,
    Model,
    ModelInfo,
    ModelSession,
    ModelStatistics,
    ModelValue,
    Obj,
    Pool,
    PoolOptions,
    PoolStatistics,
    Recycling,
    ResultStream,
    WorkerStatistics,
    trim_shared_memory,
)
from isopool.errors import (  # noqa: E402
    ArenaFull,
    BatchRefused,
    Cancelled,
    DeadlineExceeded,
    Error,
    InitializerFailed,
    LimitExceeded,
    PayloadError,
    PoolUnavailable,
    RemoteError,
    SupervisorLost,
    WorkerLost,
)
from isopool.settings import Setting  # noqa: E402

if typing.TYPE_CHECKING:
    from isopool.batch_job import BatchFailure, BatchProgress, BatchSummary, batch, retry_batch
    from isopool.executor import Executor, Future

__version__ = _build.VERSION
__all__ = [
    "ArenaFull",
    "BatchFailure",
    "BatchProgress",
    "BatchRefused",
    "BatchSummary",
    "Cancelled",
    "DeadlineExceeded",
    "Error",
    "Executor",
    "Future",
    "InitializerFailed",
    "InterpreterManager",
    "InterpreterSession",
    "LimitExceeded",
    "Model",
    "ModelInfo",
    "ModelSession",
    "ModelStatistics",
    "ModelValue",
    "Obj",
    "PayloadError",
    "Pool",
    "PoolOptions",
    "PoolStatistics",
    "PoolUnavailable",
    "Recycling",
    "RemoteError",
    "ResultStream",
    "Setting",
    "SupervisorLost",
    "WorkerLost",
    "WorkerStatistics",
    "batch",
    "retry_batch",
    "trim_shared_memory",
]


def __getattr__(name: str) -> typing.Any:
    # Only these need cloudpickle, and the second ones the library of batch jobs.
    if name in ("Executor", "Future"):
        from isopool import executor

        return getattr(executor, name)
    if name in ("batch", "retry_batch", "BatchFailure", "BatchProgress", "BatchSummary"):
        from isopool import batch_job

        return getattr(batch_job, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
