# SPDX-License-Identifier: BSD-3-Clause
"""Python code on crash-isolated worker processes, from a Python program."""

import os
import pathlib
import platform
import sys

# libisopool uses this process's libtorch, which therefore has to be there first.
import torch

from isopool import _build

if platform.python_version_tuple()[:2] != tuple(_build.PYTHON_VERSION.split(".")):
    raise ImportError(
        f"isopool was built for Python {_build.PYTHON_VERSION}, and this is "
        f"{platform.python_version()}: build it with -DISOPOOL_PYTHON_EXECUTABLE={sys.executable}"
    )
_torch_version = torch.__version__.split("+")[0]
if _torch_version != _build.TORCH_VERSION:
    raise ImportError(
        f"isopool was built with torch {_build.TORCH_VERSION}, but this Python has "
        f"{_torch_version} (in {pathlib.Path(torch.__file__).parent}): install torch=={_build.TORCH_VERSION}, or "
        "build isopool with this one"
    )
# Workers are to have this program's modules.
if sys.executable:
    os.environ.setdefault("ISOPOOL_PYTHON_EXECUTABLE", sys.executable)

from isopool._native import InterpreterManager, InterpreterSession, Obj  # noqa: E402
from isopool.errors import (  # noqa: E402
    ArenaFull,
    DeadlineExceeded,
    Error,
    LimitExceeded,
    PoolUnavailable,
    RemoteError,
    SupervisorLost,
    WorkerLost,
)

__version__ = _build.VERSION
__all__ = [
    "ArenaFull",
    "DeadlineExceeded",
    "Error",
    "InterpreterManager",
    "InterpreterSession",
    "LimitExceeded",
    "Obj",
    "PoolUnavailable",
    "RemoteError",
    "SupervisorLost",
    "WorkerLost",
]
