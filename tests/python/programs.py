# SPDX-License-Identifier: BSD-3-Clause
"""Python programs that tests start."""

import contextlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator

# A call that takes longer than this counts as hung.
PATIENCE = 60

# hang(path) writes its process into the file and never returns; then interrupt(path) sends this program a SIGINT, as
# Ctrl-C does.
INTERRUPTED = """
import os, signal, sys, threading, time
import isopool

# A shell that runs the tests in the background has them ignore SIGINT, and Python inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)

def hang(path):
    with open(path + ".part", "w") as file:
        file.write(str(os.getpid()))
    os.rename(path + ".part", path)
    time.sleep(1000)

def interrupt(path):
    while not os.path.exists(path):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
"""


def run_program(
    source: str, *arguments: str | os.PathLike[str], before: str = "", patience: float = PATIENCE
) -> subprocess.CompletedProcess[str]:
    """Runs the source, which may be indented, behind `before`. Its output is in the result."""
    return subprocess.run(
        [sys.executable, "-c", before + textwrap.dedent(source), *arguments],
        text=True,
        capture_output=True,
        timeout=patience,
    )


@contextlib.contextmanager
def serving(address: str, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """A shared supervisor with one worker that serves the address until the end."""
    words = [os.environ["ISOPOOL_SUPERVISOR"], "--listen", address, "--workers", "1", *flags]
    with subprocess.Popen(words) as process:
        try:
            while not os.path.exists(address):
                assert process.poll() is None, "isopoold has ended"
            yield process
        finally:
            process.kill()
