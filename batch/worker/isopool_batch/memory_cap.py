# SPDX-License-Identifier: BSD-3-Clause
"""The limit of this worker's private memory, and whether user code has used up most of it."""

import os
import resource

# Of the limit: a worker that has used so much is replaced between two calls ...
_NEARLY_ALL = 0.85
# ... if so much of it was used by calls. A model that needs nearly all by itself gets the rest.
_GROWN = 0.1
# Less than this of the limit decides about no item.
_LITTLE = 0.01
_PAGE = os.sysconf("SC_PAGE_SIZE")


class MemoryCap:
    """Of RLIMIT_DATA, which isopool sets (worker_memory). Compares with what the worker had when this was made."""

    def __init__(self) -> None:
        limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
        self._limit = 0 if limit == resource.RLIM_INFINITY else limit
        self._first = _used() if self._limit else 0

    def is_near(self) -> bool:
        if not self._limit:
            return False
        used = _used()
        return used > _NEARLY_ALL * self._limit and used - self._first > _GROWN * self._limit

    def has_room(self) -> bool:
        """True if earlier calls have left so little in this worker that a fresh one would have no more room."""
        return self._limit != 0 and _used() - self._first <= _LITTLE * self._limit


def _used() -> int:
    """What the limit counts: private writable memory. Two microseconds."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[5]) * _PAGE
