# SPDX-License-Identifier: BSD-3-Clause
"""How many threads the libraries of a worker use within one operation (ISOPOOL_WORKER_THREADS).

The zygote has one thread, so its libraries are loaded with a count of 1. A worker raises the count of
those that are loaded already, and the variables from which other libraries read it.
"""

import ctypes
import functools
import importlib.abc
import importlib.machinery
import os
import sys
from types import ModuleType
from typing import Any

_count = 1

# Functions that take the count, by a part of the name of the library that has one of them.
_SETTERS = {
    "openblas": (
        "scipy_openblas_set_num_threads64_",
        "scipy_openblas_set_num_threads",
        "openblas_set_num_threads64_",
        "openblas_set_num_threads",
    ),
    "libgomp": ("omp_set_num_threads",),
    "libiomp": ("omp_set_num_threads",),
    "libomp": ("omp_set_num_threads",),
    "libmkl_rt": ("MKL_Set_Num_Threads",),
    "libblis": ("bli_thread_set_num_threads",),
}


def use(count: int, variables: list[str]) -> None:
    """Sets the count of this worker, also in `variables`. Once, before user code runs."""
    global _count
    if count == _count:
        return
    _count = count
    for name in variables:
        os.environ[name] = str(count)
    import torch

    torch.set_num_threads(count)
    numexpr = sys.modules.get("numexpr")
    if numexpr is not None:
        numexpr.set_num_threads(count)
    for path in _libraries():
        _set(path, count)


def _libraries() -> set[str]:
    found = set()
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            fields = line.rstrip("\n").split(maxsplit=5)
            if len(fields) == 6 and "x" in fields[1] and ".so" in fields[5]:
                found.add(fields[5])
    return found


def _set(path: str, count: int) -> None:
    name = os.path.basename(path)
    setters = [each for part, names in _SETTERS.items() if part in name for each in names]
    if not setters:
        return
    library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    for setter in setters:
        function = getattr(library, setter, None)
        if function is not None:
            function(ctypes.c_int(count))
            return


class _Finder(importlib.abc.MetaPathFinder):
    """Limits the sessions of ONNX Runtime when the module is imported. Else a session has a thread for each
    processor: it reads none of the variables.
    """

    def find_spec(
        self, name: str, path: Any = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "onnxruntime":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            _execute_and_limit(spec.loader)
        return spec


def _execute_and_limit(loader: Any) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        _limit_sessions(module)

    # The loader stays of its own class, which other code asks for files and sources.
    loader.exec_module = exec_module


def _limit_sessions(onnxruntime: ModuleType) -> None:
    session = onnxruntime.InferenceSession
    initialize = session.__init__

    @functools.wraps(initialize)
    def limited(self, path_or_bytes, sess_options=None, *args, **kwargs):  # type: ignore[no-untyped-def]
        if sess_options is None:
            sess_options = onnxruntime.SessionOptions()
        # 0 is the default: ONNX Runtime chooses.
        if sess_options.intra_op_num_threads == 0:
            sess_options.intra_op_num_threads = _count
        if sess_options.inter_op_num_threads == 0:
            sess_options.inter_op_num_threads = 1
        initialize(self, path_or_bytes, sess_options, *args, **kwargs)

    session.__init__ = limited


def limit_onnxruntime() -> None:
    """Makes sessions of onnxruntime.InferenceSession use the worker's count unless their options have another
    one. In this process and its forks.
    """
    sys.meta_path.insert(0, _Finder())
