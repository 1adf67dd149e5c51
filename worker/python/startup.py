# SPDX-License-Identifier: BSD-3-Clause
"""The first thing that a forked worker does in Python."""

import faulthandler
import gc
import sys

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
