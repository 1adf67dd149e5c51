# SPDX-License-Identifier: BSD-3-Clause
"""The first thing that a forked worker does in Python."""

import faulthandler
import gc
import os
import sys
import tempfile

import torch


def begin(seed: int, last_words: int, debugged: bool) -> None:
    # Forks have equal generators. `random` is reseeded by Python itself.
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFFFFFF)
    faulthandler.enable(last_words, all_threads=True)
    gc.enable()
    if debugged:
        from isopool_worker import breakpoints

        breakpoints.install()


def use_temporary_folder(path: str) -> None:
    """Of a worker whose sandbox lets it write nowhere, or only where it was told."""
    wanted = os.environ.get("TMPDIR")
    try:
        tempfile.TemporaryFile(dir=wanted or "/tmp").close()
    except OSError:
        os.environ["TMPDIR"] = path
        tempfile.tempdir = None
