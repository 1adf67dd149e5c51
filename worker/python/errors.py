# SPDX-License-Identifier: BSD-3-Clause
"""Exceptions as text, and as a pickle."""

import errno
import os
import pickle
import sys
import traceback
from types import TracebackType

# Enough for any readable message; a recursion error alone has a thousand frames.
MAX_BYTES = 64 * 1024


def describe(error: BaseException, with_pickle: bool) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """Type, message, traceback as Python prints it, all of it as pybind11 formats it, and the pickle."""
    kind = type(error)
    name = kind.__qualname__
    module = getattr(kind, "__module__", None)  # a class made by exec() may have none
    if module not in (None, "builtins", "__main__"):
        name = f"{module}.{name}"
    try:
        message = str(error)
    except BaseException as unprintable:
        message = f"(str() of the exception raised {type(unprintable).__name__})"
    if isinstance(error, SystemExit):
        code = error.code
        message = f"exit code {code if isinstance(code, int) else 0 if code is None else repr(code)}"
    try:
        lines = "".join(traceback.format_exception(error))
    except BaseException as unprintable:
        lines = f"(the traceback could not be formatted: {type(unprintable).__name__})"
    formatted = f"{kind.__name__}: {message}" + _frames(error.__traceback__)
    pickled = _pickle(error) if with_pickle else b""
    return _bytes(name), _bytes(message), _bytes(lines), _bytes(formatted), pickled


def exit_code(error: BaseException) -> int:
    """With which Python ends if nothing handles the exception. Prints what Python prints then."""
    if not isinstance(error, SystemExit):
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def _pickle(error: BaseException) -> bytes:
    try:
        pickled = pickle.dumps(error, 5)
    except BaseException:
        return b""
    return pickled if len(pickled) <= MAX_BYTES else b""


def denial(error: BaseException) -> tuple[bool, list[bytes]]:
    """From an error and its causes: whether memory ran out, and the inaccessible files."""
    memory_short = False
    files: list[bytes] = []
    each: BaseException | None = error
    for _ in range(8):
        if each is None:
            break
        memory_short |= isinstance(each, MemoryError)
        if isinstance(each, OSError):
            memory_short |= each.errno == errno.ENOMEM
            if each.errno in (errno.EACCES, errno.EPERM):
                names = (each.filename, each.filename2)
                files += [os.fsencode(name) for name in names if isinstance(name, (str, bytes))]
        each = each.__cause__ or each.__context__
    return memory_short, [os.path.abspath(file) for file in files]


def _frames(trace: TracebackType | None) -> str:
    frames = []
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"  {code.co_filename}({trace.tb_lineno}): {code.co_name}\n")
        trace = trace.tb_next
    # pybind11 begins with the innermost frame.
    return "\n\nAt:\n" + "".join(reversed(frames)) if frames else ""


def _bytes(text: str) -> bytes:
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= MAX_BYTES:
        return data
    half = MAX_BYTES // 2
    cut = data[:half] + b"\n[...]\n" + data[-half:]
    return cut.decode("utf-8", "replace").encode("utf-8")
