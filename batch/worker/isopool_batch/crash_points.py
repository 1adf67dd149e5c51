# SPDX-License-Identifier: BSD-3-Clause
"""Places at which a test ends the driver and this worker, as a loss of power would.

If ISOPOOL_BATCH_CRASH_AT is "NAME:N", the Nth time that this process reaches the point NAME, it kills the driver and
then itself by SIGKILL. A step without "before-" or "after-" stands for the point before it.
"""

import os
import signal
from collections.abc import Callable

VARIABLE = "ISOPOOL_BATCH_CRASH_AT"

# Everything that changes a file. Each step has a point before and one after it.
STEPS = (
    "spill-copy-write",
    "spill-copy-sync",
    "spill-copy-rename",
    "spill-copy-folder-sync",
    "spill-truncate",
    "spill-header",
    "spill-append",
    "dataset-write",
    "dataset-sync",
    "dataset-rename",
    "schema-write",
    "schema-sync",
    "schema-rename",
    "part-write",
    "part-sync",
    "part-rename",
    "folder-sync",
    "spill-remove",
)
# The driver's own points, at which a worker does nothing: batch/journal/crash_point.h.
DRIVERS_NAMES = (
    "before-plan-commit",
    "after-plan-commit",
    "before-forget-commit",
    "after-forget-commit",
    "result-removal",
    "before-retry-commit",
    "after-retry-commit",
    "before-growth-commit",
    "after-growth-commit",
    "dropped-removal",
    "before-quarantine-commit",
    "after-quarantine-commit",
    "before-chunk-commit",
    "after-chunk-commit",
    "file-write",
    "file-sync",
    "file-rename",
    "file-folder-sync",
)
NAMES = tuple(f"{moment}-{step}" for step in STEPS for moment in ("before", "after"))

_driver = 0


def set_driver(process: int) -> None:
    """The process that a crash point kills first; 0: none."""
    global _driver
    _driver = process


def _disarmed(name: str) -> None:
    """Nothing: no crash is wanted in this process."""


def _armed(setting: str) -> Callable[[str], None]:
    wanted, _, number = setting.rpartition(":")
    if wanted in STEPS:
        wanted = f"before-{wanted}"
    if wanted not in NAMES + DRIVERS_NAMES or not number.isdecimal() or int(number) < 1:
        known = ", ".join(NAMES + DRIVERS_NAMES)
        raise ValueError(f"{VARIABLE} is {setting!r}: NAME:N is needed, with one of these names: {known}")
    left = int(number)
    if wanted in DRIVERS_NAMES:
        return _disarmed

    def reach(name: str) -> None:
        nonlocal left
        if name != wanted:
            return
        left -= 1
        if left == 0:
            # 0 and negative numbers would be groups of processes.
            if _driver > 1:
                os.kill(_driver, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    return reach


_setting = os.environ.get(VARIABLE, "")

# Call it at each point, with its name.
crash_point: Callable[[str], None] = _armed(_setting) if _setting else _disarmed
