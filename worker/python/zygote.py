# SPDX-License-Identifier: BSD-3-Clause
"""What happens once, before the first fork: everything that workers shall share."""

import gc
import importlib
import platform
import warnings

from isopool_worker import streams


def prepare(preload: list[str]) -> tuple[str, str]:
    """Imports torch and `preload`; returns the versions of Python and torch.

    Nothing here may start a thread: a fork copies only the one that forks.
    """
    # The collector writes into every object it looks at; after freeze() it looks at none of these,
    # so their pages stay shared. A worker turns it on again.
    gc.disable()
    streams.install()

    import torch

    # Before any operation: a pool of threads, once started, does not survive a fork.
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)

    for name in (
        "faulthandler",
        "importlib.util",
        "linecache",
        "random",
        "torch.package",
        "traceback",
        "isopool_worker.packages",
        "isopool_worker.modules",
        "isopool_worker.startup",
    ):
        importlib.import_module(name)
    try:
        importlib.import_module("numpy.random")
    except ImportError:
        pass
    for name in preload:
        importlib.import_module(name)
    # Of torch.package about itself, at every first package of a worker.
    warnings.filterwarnings("ignore", "TypedStorage is deprecated", UserWarning, "torch.package")

    _warm_up(torch)
    gc.collect()
    gc.freeze()
    return platform.python_version(), str(torch.__version__)


def _warm_up(torch) -> None:  # type: ignore[no-untyped-def]
    """Has the usual operations build their tables here and not once in every worker."""
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
    torch.manual_seed(0)
