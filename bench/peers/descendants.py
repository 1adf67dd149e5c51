# SPDX-License-Identifier: BSD-3-Clause
"""Finds and kills all descendants that the routes' processes have started and left."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
END_SECONDS = 10


def adopt_orphans() -> None:
    """From now on an orphaned descendant becomes a child of this process, not of init."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def kill_all() -> int:
    """Kills and reaps every descendant. Returns their number; raises TimeoutError."""
    killed: set[int] = set()
    deadline = time.monotonic() + END_SECONDS
    while True:
        reap()
        living = living_descendants()
        if not living:
            return len(killed)
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {sorted(living)} do not end")
        killed |= signal_all(living, signal.SIGKILL)
        os.sched_yield()


def signal_all(processes: set[int], number: int) -> set[int]:
    """The processes that still existed and received the signal."""
    reached = set()
    for process in processes:
        try:
            os.kill(process, number)
            reached.add(process)
        except ProcessLookupError:
            pass
    return reached


def with_variable(assignment: str) -> set[int]:
    """The descendants of this process that were started with NAME=VALUE in their environment."""
    found = set()
    for process in living_descendants():
        try:
            variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if assignment.encode() in variables:
            found.add(process)
    return found


def reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        pass


def living_descendants() -> set[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # "PID (NAME) STATE PARENT ...". A name may contain parentheses.
            parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found: set[int] = set()
    unseen = [os.getpid()]
    while unseen:
        for child in children.get(unseen.pop(), []):
            found.add(child)
            unseen.append(child)
    return found
