# SPDX-License-Identifier: BSD-3-Clause
"""Standard streams of workers: lines go out at once, errors also into the last words.

After each call the worker flushes them, if something was written: so they note what is.
"""

import io
import sys
from typing import Any

import _isopool


class _ErrorFile(io.FileIO):
    """Descriptor 2, whose writes are kept for whoever reports this worker's death."""

    def write(self, data) -> int:  # type: ignore[no-untyped-def, override]
        _isopool.say_last_words(data)
        return super().write(data)


class _NotedBuffer(io.BufferedWriter):
    """A stream's buffer, to which all goes that is written to it as text or as bytes."""

    def write(self, data) -> int:  # type: ignore[no-untyped-def, override]
        _isopool.note_output()
        return super().write(data)


class _Lines(io.TextIOWrapper):
    """Hands its text on to the buffer at once, and lines to the file."""

    def __init__(self, raw: io.RawIOBase, encoding: str, errors: str) -> None:
        super().__init__(
            _NotedBuffer(raw), encoding, errors, line_buffering=True, write_through=True
        )
        self.mode = "w"

    def reconfigure(self, **options: Any) -> None:
        # Text that it kept back would not be noted.
        super().reconfigure(**{**options, "write_through": True})


def install() -> None:
    # With PYTHONUNBUFFERED it has no buffer, and nothing to flush.
    if sys.stdout is not None and isinstance(sys.stdout.buffer, io.BufferedWriter):
        old = sys.stdout
        encoding, errors = old.encoding, old.errors
        sys.stdout = sys.__stdout__ = _Lines(old.detach().detach(), encoding, errors)
    if sys.stderr is not None:
        try:
            raw = _ErrorFile(2, "w", closefd=False)
            sys.stderr = sys.__stderr__ = _Lines(raw, sys.stderr.encoding, "backslashreplace")
        except OSError:
            pass
    _isopool.adopt_output(sys.stdout, sys.stderr)
