# SPDX-License-Identifier: BSD-3-Clause
"""Standard streams of workers: lines go out at once, errors also into the last words."""

import io
import sys

import _isopool


class _ErrorFile(io.FileIO):
    """Descriptor 2, whose writes are kept for whoever reports this worker's death."""

    def write(self, data) -> int:  # type: ignore[no-untyped-def, override]
        _isopool.say_last_words(data)
        return super().write(data)


def install() -> None:
    if sys.stdout is not None:
        sys.stdout.reconfigure(line_buffering=True)
    if sys.stderr is None:
        return
    old = sys.stderr
    try:
        raw = _ErrorFile(2, "w", closefd=False)
    except OSError:
        return
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(raw), old.encoding, "backslashreplace", line_buffering=True
    )
    sys.stderr.mode = "w"
    sys.__stderr__ = sys.stderr
