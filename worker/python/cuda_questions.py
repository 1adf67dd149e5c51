# SPDX-License-Identifier: BSD-3-Clause
"""Whether there are CUDA devices, asked in the zygote without using CUDA there."""

import os
import select
import signal
from collections.abc import Callable
from functools import cache, wraps
from typing import TypeVar

import torch

Answer = TypeVar("Answer", bool, int)

_SECONDS = 60  # until the child has to have answered
_own = torch.cuda.device_count, torch.cuda.is_available


def begin_asking_in_a_child() -> None:
    """Modules ask when they are imported (`DEVICE = "cuda" if torch.cuda.is_available() else "cpu"`).
    torch's own answer starts CUDA and a thread of it, and then neither this process nor its forks
    could serve. So until end_asking_in_a_child() a child answers, once."""
    torch.cuda.device_count = _in_a_child(torch.cuda.device_count, int)
    torch.cuda.is_available = _in_a_child(torch.cuda.is_available, bool)


def end_asking_in_a_child() -> None:
    torch.cuda.device_count, torch.cuda.is_available = _own


def _in_a_child(ask: Callable[[], Answer], kind: type[Answer]) -> Callable[[], Answer]:
    zygote = os.getpid()

    @cache
    def answer() -> int:
        return _answer_of_a_child(ask)

    @wraps(ask)
    def question() -> Answer:
        # A module may keep this function, and call it in a worker.
        return kind(answer()) if os.getpid() == zygote else ask()

    return question


def _answer_of_a_child(ask: Callable[[], int]) -> int:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, str(int(ask())).encode())
        finally:
            os._exit(0)
    os.close(writer)
    try:
        ready, _, _ = select.select([reader], [], [], _SECONDS)
        text = os.read(reader, 20) if ready else b""
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if not text:
        raise RuntimeError(f"CUDA does not answer within {_SECONDS} s how many devices there are")
    return int(text)
