# SPDX-License-Identifier: BSD-3-Clause
"""Files that are there as a whole or not at all, also after a loss of power."""

import contextlib
import errno
import filecmp
import os
import uuid
from collections.abc import Callable, Iterator
from typing import BinaryIO, Literal

from isopool_batch.crash_points import crash_point


_MASK = os.umask(0o077)
os.umask(_MASK)


@contextlib.contextmanager
def own_mask() -> Iterator[None]:
    """Files that are made meanwhile have the permissions that they have without user code, which may set another mask."""
    of_user_code = os.umask(_MASK)
    try:
        yield
    finally:
        os.umask(of_user_code)


def write(path: str, fill: Callable[[BinaryIO], None], step: str) -> int:
    """Makes or replaces a file with what `fill` writes; returns its size. step: begins the names of the crash points.

    It is written beside its place, under a hidden name. Raises OSError, and what `fill` raises.
    """
    beside = aside(path)
    try:
        size = _make(beside, "wb", fill, step)
        crash_point(f"before-{step}-rename")
        os.rename(beside, path)
    except BaseException:
        # A full disk gets the space back.
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    crash_point(f"after-{step}-rename")
    _sync_name(path, f"{step}-folder-sync")
    return size


def publish(path: str, fill: Callable[[BinaryIO], None], step: str) -> int:
    """As write(), but never replaces a file: one with the same contents stays, and counts as written.

    Each call writes a file of its own beside, so that no other writer, also of another machine, can write into the
    published one. Raises FileExistsError if there is a file with other contents.
    """
    beside = _beside(path, f".{uuid.uuid4().hex}")
    try:
        size = _make(beside, "xb", fill, step)
        crash_point(f"before-{step}-rename")
        _link(beside, path)
    finally:
        # A full disk gets the space back.
        with contextlib.suppress(OSError):
            os.unlink(beside)
    crash_point(f"after-{step}-rename")
    _sync_name(path, "folder-sync")
    return size


def _make(beside: str, mode: Literal["wb", "xb"], fill: Callable[[BinaryIO], None], step: str) -> int:
    """Fills a file, whose contents are on the disk afterwards; returns its size."""
    with own_mask():
        made = open(beside, mode)
    with made as file:
        crash_point(f"before-{step}-write")
        fill(file)
        file.flush()
        crash_point(f"after-{step}-write")
        crash_point(f"before-{step}-sync")
        os.fsync(file.fileno())
        crash_point(f"after-{step}-sync")
        return os.fstat(file.fileno()).st_size


def sweep(path: str) -> None:
    """Removes what processes have left that died in publish(). One that goes on after all can't publish its file."""
    folder, name = os.path.split(path)
    for each in os.listdir(folder):
        if each.startswith(f".{name}.") and each.endswith(".aside"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, each))


# What link() raises where there are no links: FAT, some network file systems.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})


def _link(beside: str, path: str) -> None:
    try:
        os.link(beside, path)
        return
    except FileExistsError:
        exists = True
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        exists = os.path.exists(path)
    if not exists:
        os.rename(beside, path)
    elif not filecmp.cmp(beside, path, shallow=False):
        raise FileExistsError(errno.EEXIST, "another writer has completed it with other contents", path)


def aside(path: str) -> str:
    """Where write() makes the file: what a process that died there has left."""
    return _beside(path, "")


def _beside(path: str, mark: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}{mark}.aside")


def remove(path: str) -> None:
    """Removes the file, if there is one."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
        _sync_folder(os.path.dirname(path))


def _sync_name(path: str, step: str) -> None:
    crash_point(f"before-{step}")
    _sync_folder(os.path.dirname(path))
    crash_point(f"after-{step}")


def _sync_folder(folder: str) -> None:
    """Afterwards the names of the folder's files are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
