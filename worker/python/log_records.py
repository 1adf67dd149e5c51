# SPDX-License-Identifier: BSD-3-Clause
"""Records of the module logging, in a worker where no code has set a handler for them.

Python prints such records on the error stream if they are warnings or worse. A worker does so too, and tells the
supervisor each line's level; a program may pass its own settings on to the workers of its private pool.
"""

import logging
import os
import sys

import _isopool

# The levels of syslog by which a line's prefix names its priority: sd-daemon(3).
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG = 7


class _LoggedHandler(logging.Handler):
    """As logging.lastResort, for a worker whose lines become lines of a log: each begins with its priority."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record) + "\n"
            if sys.stderr is not None and sys.stderr is sys.__stderr__:
                _write(text, next((each for least, each in _PRIORITIES if record.levelno >= least), _DEBUG))
            elif sys.stderr is not None:  # user code has replaced it
                sys.stderr.write(text)
        except Exception:
            self.handleError(record)


def _write(text: str, priority: int) -> None:
    data = text.encode(errors="backslashreplace")
    _isopool.append_to_crash_log(data)
    rest = memoryview(b"".join(b"<%d>%s" % (priority, line) for line in data.splitlines(keepends=True)))
    while rest:
        rest = rest[os.write(2, rest) :]


def begin(shared: bool, logged: bool) -> None:
    """shared: the worker serves several programs. logged: its lines go to a supervisor's log."""
    global _shared
    _shared = shared
    if logged and not shared:
        logging.lastResort = _LoggedHandler(logging.WARNING)  # type: ignore[assignment]


_shared = False


def adopt(levels: dict[str, int], formatter: logging.Formatter) -> None:
    """Uses the levels of the program's loggers by name, and prints records of all levels in its format.

    Does nothing in a worker that serves several programs: its loggers are those of all.
    """
    if _shared:
        return
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    if logging.lastResort is not None:
        logging.lastResort.setLevel(logging.NOTSET)
        logging.lastResort.setFormatter(formatter)
