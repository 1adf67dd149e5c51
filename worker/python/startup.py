# SPDX-License-Identifier: BSD-3-Clause
"""The first steps of a forked worker in Python."""

import gc
import multiprocessing.connection
import multiprocessing.process
import os
import signal
import sys
import tempfile
from multiprocessing import shared_memory
from typing import Any

import torch
from isopool_worker import interpreter_settings, log_records, thread_counts


def begin(
    seed: int,
    crash_log: int,
    debugged: bool,
    named_objects: str,
    threads: int,
    thread_variables: list[str],
    gpu: str,
    shared: bool,
    logged: bool,
) -> None:
    # The driver reads it when CUDA is used for the first time, which the zygote has not done.
    if gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    _handlers.update({number: signal.getsignal(number) for number in signal.valid_signals()})
    # Libraries and log records tell a program's first process from others by its name.
    multiprocessing.process.current_process().name = f"IsopoolWorker-{os.getpid()}"
    multiprocessing.process._parent_process = _Supervisor()  # type: ignore[attr-defined]
    # Before user code and the libraries that it loads.
    thread_counts.use(threads, thread_variables)
    log_records.begin(bool(shared), bool(logged))
    # All forks start with equal generators. Python reseeds `random` itself.
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFFFFFF)
    interpreter_settings.record(crash_log)
    gc.enable()
    if named_objects:
        _name_objects(named_objects)
    if debugged:
        from isopool_worker import breakpoints

        breakpoints.install()


class _Supervisor(multiprocessing.process._ParentProcess):  # type: ignore[name-defined, misc]
    """What multiprocessing.parent_process() returns: also by this, libraries tell a program's first process."""

    def __init__(self) -> None:
        super().__init__("MainProcess", os.getppid(), None)

    def is_alive(self) -> bool:
        return os.getppid() == self.pid

    def join(self, timeout: float | None = None) -> None:
        process = os.pidfd_open(self.pid)
        try:
            multiprocessing.connection.wait([process], timeout)
        finally:
            os.close(process)


def _name_objects(prefix: str) -> None:
    """Sets the prefix of the semaphores and shared memory that Python names, in this process and
    its forks. Python's resource tracker, which would remove those that are left, is killed together
    with the worker. The supervisor removes them instead, and finds them by this prefix.
    """
    # multiprocessing has no public interface for either.
    multiprocessing.process.current_process()._config["semprefix"] = "/" + prefix.removesuffix("-")
    shared_memory._SHM_NAME_PREFIX = "/" + prefix  # type: ignore[attr-defined]
    shared_memory._SHM_SAFE_NAME_LENGTH = 1 + len(prefix) + 8  # type: ignore[attr-defined]


def restore_signals() -> None:
    """Ends the handlers that user code has set since the worker began, and its interval timers."""
    for number, handler in _handlers.items():
        now = signal.getsignal(number)
        if callable(now) and now is not handler:
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
    for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
        signal.setitimer(timer, 0)


_handlers: dict[int, Any] = {}


def do_nothing() -> None:
    """Gives the interpreter an opportunity to raise what another thread has raised in this one."""


def use_temporary_folder(path: str) -> None:
    """Uses `path` for temporary files if the sandbox forbids to write in TMPDIR, or in /tmp."""
    wanted = os.environ.get("TMPDIR")
    try:
        tempfile.TemporaryFile(dir=wanted or "/tmp").close()
    except OSError:
        os.environ["TMPDIR"] = path
        tempfile.tempdir = None
