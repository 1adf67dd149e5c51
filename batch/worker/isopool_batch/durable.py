# SPDX-License-Identifier: BSD-3-Clause
"""Files that are there as a whole or not at all, also after a loss of power."""

import contextlib
import os
from collections.abc import Callable
from typing import BinaryIO

from isopool_batch.crash_points import crash_point


def write(path: str, fill: Callable[[BinaryIO], None], step: str) -> int:
    """Makes or replaces a file with what `fill` writes; returns its size. step: begins the names of the crash points.

    It is written beside its place, under a hidden name. Raises OSError, and what `fill` raises.
    """
    beside = aside(path)
    try:
        with open(beside, "wb") as file:
            crash_point(f"before-{step}-write")
            fill(file)
            file.flush()
            crash_point(f"after-{step}-write")
            crash_point(f"before-{step}-sync")
            os.fsync(file.fileno())
            crash_point(f"after-{step}-sync")
            size = os.fstat(file.fileno()).st_size
        crash_point(f"before-{step}-rename")
        os.rename(beside, path)
    except BaseException:
        # A full disk gets the space back.
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    crash_point(f"after-{step}-rename")
    of_folder = "folder-sync" if step == "part" else f"{step}-folder-sync"
    crash_point(f"before-{of_folder}")
    _sync_folder(os.path.dirname(path))
    crash_point(f"after-{of_folder}")
    return size


def aside(path: str) -> str:
    """Where write() makes the file: what a process that died there has left."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.aside")


def remove(path: str) -> None:
    """Removes the file, if there is one."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
        _sync_folder(os.path.dirname(path))


def _sync_folder(folder: str) -> None:
    """Afterwards the names of the folder's files are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
