# SPDX-License-Identifier: BSD-3-Clause
"""Runs once, before the first fork: creates everything that workers share."""

import gc
import importlib
import io
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial

from isopool_worker import streams, thread_counts


_held: list[object] = []  # kept alive as long as the zygote


def begin() -> None:
    """Imports torch. No function here may start a thread: a fork copies only the thread that forks."""
    # The collector writes into every object that it visits. After freeze() it visits none of these
    # objects, so their pages stay shared. A worker enables the collector again.
    gc.disable()
    streams.install()
    thread_counts.limit_onnxruntime()

    import torch
    from isopool_worker import cuda_questions

    # Before any operation: a thread pool that was started does not survive a fork.
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    cuda_questions.begin_asking_in_a_child()


def import_own() -> None:
    """Imports what workers need. Preloaded modules follow, one by one: the zygote counts its threads
    after each.
    """
    for name in (
        "faulthandler",
        "importlib.util",
        "linecache",
        "random",
        "tempfile",
        "torch.package",
        "traceback",
        "isopool_worker.model_backends",
        "isopool_worker.modules",
        "isopool_worker.moving",
        "isopool_worker.startup",
        "isopool_worker.thread_counts",
        "isopool_worker.thread_locals",
        "isopool_worker.values",
    ):
        importlib.import_module(name)
    try:
        importlib.import_module("numpy.random")
    except ImportError:
        pass


def preload(name: str) -> None:
    importlib.import_module(name)


def finish() -> tuple[str, str]:
    """Runs common operations, and returns the versions of Python and torch."""
    import torch

    from isopool_worker import cuda_questions, thread_locals

    # Programs for torch::deploy expect it there.
    sys.modules["__main__"].torch = torch  # type: ignore[attr-defined]
    # torch.package causes this warning itself, at the first package of each worker.
    warnings.filterwarnings("ignore", "TypedStorage is deprecated", UserWarning, "torch.package")

    _warm_up(torch)
    cuda_questions.end_asking_in_a_child()
    thread_locals.find()
    # No collection before: it takes a tenth of a second to free 2 MB, which all workers share.
    _held.extend(_fill_holes())
    gc.freeze()
    return platform.python_version(), str(torch.__version__)


def folders() -> list[bytes]:
    """The folders with programs and modules of this Python; a worker in a sandbox may read them."""
    prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    names = sorted(prefixes) + [name for name in sys.path if name.startswith("/")]
    return [os.fsencode(name) for name in dict.fromkeys(names) if name != "/"]


def _warm_up(torch) -> None:  # type: ignore[no-untyped-def]
    """Runs common operations, so that they build their tables here and not in every worker."""
    with torch.no_grad():
        x = torch.ones(1, 3, 8, 8)
        y = torch.nn.functional.conv2d(x, torch.ones(4, 3, 3, 3))
        y = torch.nn.functional.relu(y).flatten(1)
        y = torch.nn.functional.linear(y, torch.ones(5, y.shape[1]), torch.ones(5))
        y = torch.nn.functional.layer_norm(y, (5,))
        torch.softmax(y, -1).argmax(-1).tolist()
        torch.nn.functional.embedding(torch.tensor([0, 1]), torch.ones(2, 4))
        torch.mm(torch.ones(4, 4), torch.ones(4, 4)).sum().item()
        str(torch.ones(2))
    _warm_up_packages(torch)
    torch.manual_seed(0)


def _warm_up_packages(torch) -> None:  # type: ignore[no-untyped-def]
    """Loads and runs a package once, so that workers share the resulting modules, specialised
    bytecode and caches. Without this each worker has 2 MB more private memory.
    """
    file = io.BytesIO()
    with torch.package.PackageExporter(file) as exporter:
        exporter.save_source_string("warm_up", "import torch\nfactor = 2.0\n")
        exporter.save_pickle("model", "model.pkl", torch.nn.Sequential(torch.nn.Linear(4, 4)))
    file.seek(0)
    importer = torch.package.PackageImporter(file)
    importer.import_module("warm_up")
    model = importer.load_pickle("model", "model.pkl")
    with torch.no_grad():
        model(torch.ones(1, 4))
    model(torch.ones(1, 4)).detach()


def _fill_holes() -> Iterator[object]:
    """Fills the free places that CPython's small-object allocator has between live objects.

    A worker's new objects would use these places first, and each would turn a shared page into a
    private one. If the places are occupied, new objects are put side by side into new pages, which
    takes a third less private memory.
    """
    # One kind of object for each size class of the allocator, 16 to 512 bytes.
    makers: list[tuple[int, Callable[[], object]]] = [(16, object), (32, lambda: float("1.5"))]
    empty = sys.getsizeof(b"")
    makers += [(size, partial(bytes, size - empty)) for size in range(48, 513, 16)]
    for size, make in makers:
        # If a whole pool (16 KiB) is filled from begin to end, no free place was left before it.
        wanted = (16 << 10) // size - 4
        row = last = 0
        for _ in range(20_000):
            one = make()
            row = row + 1 if id(one) == last + size else 0
            last = id(one)
            yield one
            if row >= wanted:
                break
