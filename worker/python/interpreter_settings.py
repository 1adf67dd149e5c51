# SPDX-License-Identifier: BSD-3-Clause
"""Settings of the interpreter that any code can change, and that are set back before another program's code runs."""

import faulthandler
import functools
import sys
from collections.abc import Callable
from typing import Any

# How each is read and set.
_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], None]], ...] = (
    (sys.getswitchinterval, sys.setswitchinterval),
    (sys.get_int_max_str_digits, sys.set_int_max_str_digits),
    (sys.getdlopenflags, sys.setdlopenflags),
    (sys.get_coroutine_origin_tracking_depth, sys.set_coroutine_origin_tracking_depth),
)

_recorded: list[Any] = []
_show_crashes: Callable[[], None] | None = None
_crashes_shown = True


def record(crash_log: int) -> None:
    """Records them, and has Python's stack written to the crash log when the process crashes. Once, before any user
    code runs."""
    global _show_crashes
    _recorded.extend(read() for read, _ in _SETTINGS)
    # A crash log's readers get its end, which must be Python's stack: since Python 3.14 that of C follows it.
    no_stack_of_c = {"c_stack": False} if sys.version_info >= (3, 14) else {}
    _show_crashes = functools.partial(faulthandler.enable, crash_log, all_threads=True, **no_stack_of_c)
    _show_crashes()
    # faulthandler does not tell whether the file is another one now.
    for name in ("enable", "disable"):
        setattr(faulthandler, name, _noting(getattr(faulthandler, name)))


def restore() -> None:
    global _crashes_shown
    for (read, write), value in zip(_SETTINGS, _recorded):
        if read() != value:
            write(value)
    if not _crashes_shown and _show_crashes is not None:
        _show_crashes()
        _crashes_shown = True


def _noting(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        global _crashes_shown
        _crashes_shown = False
        return function(*arguments, **options)

    return call
