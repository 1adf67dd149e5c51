# SPDX-License-Identifier: BSD-3-Clause
"""Runs scripts and statements as __main__, for interactive_embedded_interpreter in its worker."""

import atexit
import code
import io
import os
import runpy
import sys
import threading
import traceback
import types
from collections.abc import Callable

OURS = __name__
INTERRUPTED = 130  # what a shell reports after Ctrl-C


class _NoTerminal(io.TextIOBase):
    """Replaces sys.stdin: the kernel stops a background process that reads from its terminal."""

    def readable(self) -> bool:
        return True

    def readline(self, size: int = -1) -> str:
        raise OSError("a worker can't read from the terminal: give the input as a file or a pipe")

    def read(self, size: int = -1) -> str:
        return self.readline()


def set_up(folder: str, argv: list[str]) -> None:
    os.chdir(folder)
    sys.argv = argv
    if os.isatty(0):
        sys.stdin = _NoTerminal()


def run_file(path: str) -> int:
    """Runs the script, module folder or zip file at `path` and returns its exit code."""
    if os.path.isfile(path):
        # As `python path` does. For folders and zip files runpy does it.
        sys.path.insert(0, os.path.dirname(path))
    return _status_of(lambda: runpy.run_path(path, run_name="__main__"))


def run_text(text: str) -> int:
    """Runs a program that has no file and returns its exit code."""
    names = _new_main()
    return _status_of(lambda: exec(compile(text, "<stdin>", "exec"), names))


class Prompt(code.InteractiveConsole):
    """Runs an interactive session line by line."""

    def __init__(self) -> None:
        super().__init__(_new_main(), "<stdin>")

    def take(self, line: str) -> tuple[bool, int]:
        """Whether the statement needs more lines, and the exit code or -1."""
        try:
            return self.push(line), -1
        except SystemExit as stop:
            return False, _exit_code(stop)
        finally:
            _flush()

    def forget(self) -> None:
        """Drops the lines of a statement that was begun."""
        self.resetbuffer()


def end() -> int:
    """Joins threads and runs exit functions, as Python does at the end of a program.

    Returns 0.
    """
    return _status_of(lambda: None)


def _new_main() -> dict[str, object]:
    main = types.ModuleType("__main__")
    main.__builtins__ = sys.modules["builtins"]  # type: ignore[attr-defined]
    sys.modules["__main__"] = main
    return main.__dict__


def _status_of(program: Callable[[], object]) -> int:
    status = 0
    try:
        program()
    except SystemExit as stop:
        status = _exit_code(stop)
    except BaseException as error:
        error = error.with_traceback(_without_ours(error.__traceback__))
        sys.excepthook(type(error), error, error.__traceback__)
        status = INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    try:
        for thread in threading.enumerate():
            if not thread.daemon and thread is not threading.current_thread():
                thread.join()
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    _flush()
    return status


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF
    print(stop.code, file=sys.stderr)
    return 1


def _without_ours(trace: types.TracebackType | None) -> types.TracebackType | None:
    while trace is not None and trace.tb_frame.f_globals.get("__name__") in (OURS, "runpy"):
        trace = trace.tb_next
    return trace


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass  # closed by the program
