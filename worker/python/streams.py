# SPDX-License-Identifier: BSD-3-Clause
"""Standard streams of workers. Lines are written immediately, errors also to the crash log.

After each call the worker flushes the streams that were written to, so they note each write.
"""

import io
import sys
from typing import Any

import _isopool


class _ErrorFile(io.FileIO):
    """Descriptor 2. Its text is also kept in the crash log, to report this worker's death."""

    def write(self, data) -> int:  # type: ignore[no-untyped-def, override]
        _isopool.append_to_crash_log(data)
        return super().write(data)


class _NotedBuffer(io.BufferedWriter):
    """The buffer of a stream. All text and bytes that are written to the stream pass through it."""

    def write(self, data) -> int:  # type: ignore[no-untyped-def, override]
        _isopool.note_output()
        return super().write(data)


class _Lines(io.TextIOWrapper):
    """Passes text to the buffer immediately, and complete lines to the file."""

    def __init__(self, buffer: io.BufferedWriter | io.FileIO, encoding: str, errors: str) -> None:
        super().__init__(buffer, encoding, errors, line_buffering=True, write_through=True)
        self.mode = "w"

    def reconfigure(self, **options: Any) -> None:
        # Otherwise text could stay in this object without being noted.
        super().reconfigure(**{**options, "write_through": True})


def install() -> None:
    out = err = None
    old = sys.stdout
    if type(old) is io.TextIOWrapper and isinstance(old.buffer, (io.BufferedWriter, io.FileIO)):
        encoding, errors = old.encoding, old.errors
        buffer = old.detach()
        # With PYTHONUNBUFFERED the buffer is the file itself, which holds no text back.
        if isinstance(buffer, io.BufferedWriter):
            buffer = _NotedBuffer(buffer.detach())
        sys.stdout = sys.__stdout__ = out = _Lines(buffer, encoding, errors)
    elif old is not None:
        old.reconfigure(line_buffering=True)
    if sys.stderr is not None:
        try:
            file = _ErrorFile(2, "w", closefd=False)
            err = _Lines(_NotedBuffer(file), sys.stderr.encoding, "backslashreplace")
            sys.stderr = sys.__stderr__ = err
        except OSError:
            pass
    _isopool.adopt_output(out, err)
