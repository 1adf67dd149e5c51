# SPDX-License-Identifier: BSD-3-Clause
"""The exceptions that isopool raises: the classes of isopool/errors.h, which describes each."""

import io
import pickle
import sys
import warnings
from concurrent.futures.process import BrokenProcessPool
from typing import Any


class Error(RuntimeError):
    """The base class. Raised itself for wrong use: a closed session, a pool that has ended."""

    def __init__(self, text: str, **facts: object) -> None:
        super().__init__(text)
        self.__dict__.update(facts)


class BatchRefused(Error):
    """A batch job can't be run as it is. The text says what to change. No result was changed."""


class RemoteError(Error):
    """An exception that Python code in a worker did not catch. The worker continues to serve."""

    python_type: str
    message: str
    traceback: str
    worker: str

    def __init__(self, text: str, **facts: object) -> None:
        super().__init__(text, **facts)
        if facts.get("traceback"):
            self.add_note(f"In {self.worker}:\n{self.traceback}")


class _Unpickler(pickle.Unpickler):
    """Makes an exception of plain values, and nothing else: a worker of a sandbox may have been taken over."""

    def find_class(self, module: str, name: str) -> Any:
        # Only what this program has imported.
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if isinstance(found, type) and issubclass(found, Exception):
            return found
        raise pickle.UnpicklingError(f"{module}.{name} is not an exception of this program")


def from_worker(text: str, pickled: bytes, **facts: object) -> Exception:
    """The exception that a worker raised, whose __cause__ is its RemoteError; or that RemoteError itself."""
    remote = RemoteError(text, **facts)
    if not pickled:
        return remote
    try:
        error = _Unpickler(io.BytesIO(pickled)).load()
    except Exception:
        return remote
    if not isinstance(error, Exception):
        return remote
    error.__cause__ = remote
    return error


class WorkerLost(Error, BrokenProcessPool):
    """The worker that had the call died. The supervisor replaces it: unlike a BrokenProcessPool of
    concurrent.futures, it ends this call only.

    signal is 0 if the worker exited by itself; signal and exit_code are unknown if cause_known is
    false. started is true if user code of the call may have run.
    """

    worker: str
    process_id: int
    signal: int
    exit_code: int
    cause_known: bool
    crash_log: str
    started: bool

    @property
    def last_words(self) -> str:
        """Deprecated alias of `crash_log`, for one release."""
        warnings.warn("WorkerLost.last_words is now crash_log", DeprecationWarning, stacklevel=2)
        return self.crash_log


class DeadlineExceeded(Error):
    """The call's deadline passed. If started is false, the call will not run."""

    started: bool


class Cancelled(Error):
    """The call was cancelled. If started is false, it has not run; else its worker was killed."""

    started: bool


class PoolUnavailable(Error):
    """No worker can take the call: they died repeatedly. The text names the cause."""


class SupervisorLost(Error):
    """The supervisor could not start, is about to end, or has ended, and its workers with it."""

    started: bool


class LimitExceeded(Error):
    """This program reached a limit of a shared supervisor's operator. The text names it."""


class ArenaFull(Error):
    """Shared memory has no room for the values of a call. The text names the setting."""


class PayloadError(Error, BrokenProcessPool):
    """A function, an argument or a result could not be unpickled. The text says which and where; __cause__ why."""


class InitializerFailed(Error, BrokenProcessPool):
    """The initializer of an Executor raised in a worker, so no call can run. __cause__ is its exception."""
