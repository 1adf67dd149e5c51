# SPDX-License-Identifier: BSD-3-Clause
"""What isopool raises: the family of isopool/errors.h."""

import warnings


class Error(RuntimeError):
    """The base of the family. Raised itself for misuse: a closed session, a pool that is gone."""

    def __init__(self, text: str, **facts: object) -> None:
        super().__init__(text)
        self.__dict__.update(facts)


class RemoteError(Error):
    """An exception that Python code in a worker did not catch. The worker lives on."""

    python_type: str
    message: str
    traceback: str
    worker: str

    def __init__(self, text: str, **facts: object) -> None:
        super().__init__(text, **facts)
        if facts.get("traceback"):
            self.add_note(f"In {self.worker}:\n{self.traceback}")


class WorkerLost(Error):
    """The worker that had the call died."""

    worker: str
    process_id: int
    signal: int
    exit_code: int
    cause_known: bool
    crash_log: str
    started: bool

    @property
    def last_words(self) -> str:
        """The old name of `crash_log`, for one release."""
        warnings.warn("WorkerLost.last_words is now crash_log", DeprecationWarning, stacklevel=2)
        return self.crash_log


class DeadlineExceeded(Error):
    """The call's deadline passed."""

    started: bool


class PoolUnavailable(Error):
    """No worker could take the call, because they keep dying."""


class SupervisorLost(Error):
    """The supervisor is gone, is about to end, or could not start, and its workers with it."""

    started: bool


class LimitExceeded(Error):
    """A shared supervisor lets this program have no more; the text names the limit."""


class ArenaFull(Error):
    """Shared memory has no room for a payload; the text names the knob."""
