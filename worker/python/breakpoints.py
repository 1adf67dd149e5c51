# SPDX-License-Identifier: BSD-3-Clause
"""breakpoint() in a worker: pdb over a Unix socket, because stdin is not a terminal."""

import os
import pdb
import socket
import sys
import tempfile
from types import FrameType


class _Terminal:
    """A connection as pdb's standard input and output. A closed connection reads as end of file."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("r", encoding="utf-8", errors="replace")

    def readline(self) -> str:
        try:
            return self._lines.readline()
        except OSError:
            return ""

    def write(self, text: str) -> int:
        try:
            self._connection.sendall(text.encode("utf-8", "backslashreplace"))
        except OSError:
            pass
        return len(text)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self._lines.close()
        self._connection.close()


class _Debugger(pdb.Pdb):
    """Keeps its connection as long as it may stop again. After a disconnect the call continues."""

    def __init__(self, connection: socket.socket) -> None:
        self._terminal = _Terminal(connection)
        super().__init__(
            stdin=self._terminal,  # type: ignore[arg-type]
            stdout=self._terminal,  # type: ignore[arg-type]
            nosigint=True,
            readrc=False,
        )
        self.prompt = "(Pdb) "

    def set_continue(self) -> None:
        super().set_continue()
        if not self.breaks:
            self._terminal.close()

    def set_quit(self) -> None:
        super().set_quit()
        self._terminal.close()

    def do_EOF(self, arg: str) -> int | None:
        self.clear_all_breaks()
        return self.do_continue(arg)


def _wait_for_debugger(frame: FrameType) -> socket.socket:
    # Only this user may enter the folder.
    folder = tempfile.mkdtemp(prefix="isopool-breakpoint-")
    path = os.path.join(folder, str(os.getpid()))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(1)
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        print(
            f"isopool worker (pid {os.getpid()}): breakpoint at {place}; "
            f"connect with: nc -U {path}",
            file=sys.stderr,
            flush=True,
        )
        connection, _ = server.accept()
    os.unlink(path)
    os.rmdir(folder)
    return connection


def stop_here(*arguments: object, **named: object) -> None:
    """The hook of breakpoint(): waits until a debugger connects, and stops in the caller."""
    frame = sys._getframe(1)
    _Debugger(_wait_for_debugger(frame)).set_trace(frame)


def install() -> None:
    # PYTHONBREAKPOINT takes precedence: the user set it.
    if "PYTHONBREAKPOINT" not in os.environ:
        sys.breakpointhook = stop_here
