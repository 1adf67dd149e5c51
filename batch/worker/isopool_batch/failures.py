# SPDX-License-Identifier: BSD-3-Clause
"""Failures of user code, described for the driver."""

import errno
import json
import traceback
from collections.abc import Callable
from types import TracebackType

from isopool_batch.results import WrongCount

READ, PREPROCESS, MODEL, POSTPROCESS, WRITE = "read", "preprocess", "model", "postprocess", "write"

RAISED, MEMORY = "raised", "memory"

# Enough for any readable message; a recursion error alone has a thousand frames.
MOST_CHARACTERS = 64 * 1024

# As many causes of an exception are examined.
_MOST_CAUSES = 8


class Progress:
    """What runs at the moment: the phase, and the item's index, or None while a batch is handled as a whole."""

    __slots__ = ("phase", "item")

    def __init__(self) -> None:
        self.phase = READ
        self.item: int | None = None


def describe(
    error: BaseException, phase: str, item: int | None, first: int, count: int, has_room: bool, broken: bool = False
) -> str:
    """The failure of the call with items first to first + count - 1 as a JSON object.

    "spoilt": whether later calls of this worker may fail for the same cause; has_room: not for lack of the processor's
    memory; broken: in any case. "whole": smaller calls of these items say nothing. Always succeeds, whatever the exception's own methods do.
    """
    memory = _any_cause(error, _is_memory)
    of_device = _any_cause(error, _is_of_device)
    return json.dumps(
        {
            "reason": MEMORY if memory else RAISED,
            "spoilt": broken or of_device or (memory and not has_room) or _any_cause(error, _is_of_used_up_worker),
            "whole": isinstance(error, WrongCount),
            "phase": phase,
            "item": item,
            "first": first,
            "count": count,
            "type": _type_name(error),
            "message": _shortened(_message(error)),
            "traceback": _shortened(_traceback(error)),
        }
    )


def printable(text: str) -> str:
    """The text with lone surrogates as escapes: UTF-8 has no code for them."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _type_name(error: BaseException) -> str:
    kind = type(error)
    module = getattr(kind, "__module__", None)  # a class made by exec() may have none
    if module in (None, "builtins", "__main__"):
        return kind.__qualname__
    return f"{module}.{kind.__qualname__}"


def _message(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        code = error.code
        return f"exit code {0 if code is None else code if isinstance(code, int) else repr(code)}"
    try:
        return str(error)
    except BaseException as unprintable:
        return f"(str() of the exception raised {type(unprintable).__name__})"


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(type(error), error, _users_frames(error.__traceback__)))
    except BaseException as unprintable:
        return f"(the traceback could not be formatted: {type(unprintable).__name__})"


def _users_frames(trace: TracebackType | None) -> TracebackType | None:
    """The frames from the first one of user code on; all of them if there is none."""
    each = trace
    while each is not None and str(each.tb_frame.f_globals.get("__name__")).startswith("isopool_batch."):
        each = each.tb_next
    return each if each is not None else trace


def _any_cause(error: BaseException, matches: Callable[[BaseException], bool]) -> bool:
    each: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if each is None:
            return False
        if matches(each):
            return True
        each = each.__cause__ or each.__context__
    return False


def _is_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    return isinstance(error, RuntimeError) and _is_torchs_memory(error)


def _is_of_used_up_worker(error: BaseException) -> bool:
    """Earlier items have used up what a process can have: descriptors, threads."""
    if isinstance(error, OSError) and error.errno == errno.EMFILE:
        return True
    return isinstance(error, RuntimeError) and "can't start new thread" in _message(error)


def _is_of_device(error: BaseException) -> bool:
    """After an error in a kernel, as an index out of range, each later use of the device by the process fails, too.

    Memory of the device is kept by the process for later use, in pieces that may be too small for that.
    """
    return isinstance(error, RuntimeError) and (
        _is_of_torchs_class(error, "AcceleratorError")
        or _is_of_torchs_class(error, "OutOfMemoryError")
        or "CUDA error: " in _message(error)
    )


def _is_of_torchs_class(error: BaseException, name: str) -> bool:
    # By name: torch need not be imported here.
    return any(kind.__name__ == name and kind.__module__.startswith("torch") for kind in type(error).__mro__)


def _is_torchs_memory(error: RuntimeError) -> bool:
    if _is_of_torchs_class(error, "OutOfMemoryError"):
        return True
    text = _message(error)
    return ("DefaultCPUAllocator" in text and "allocate memory" in text) or "CUDA error: out of memory" in text


def _shortened(text: str) -> str:
    text = printable(text)
    if len(text) <= MOST_CHARACTERS:
        return text
    half = MOST_CHARACTERS // 2
    return f"{text[:half]}\n[...]\n{text[-half:]}"
