# SPDX-License-Identifier: BSD-3-Clause
"""A route's process, as run.py uses it. measuring.py describes the protocol."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import time

import descendants

START_SECONDS = 120
ROUND_SECONDS = 240
END_SECONDS = 30
# A variable in the environment of each process that a route starts: the name of the route.
MARK = "ISOPOOL_PEERS_ROUTE"


class RouteFailed(Exception):
    """The reason, in one line, why a route has no number."""


class WrongAnswer(Exception):
    pass


class RouteProcess:
    """Stopped, with everything that it started, except while it is measured: background work of a
    peer must not affect the numbers of other routes.
    """

    def __init__(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        self._mark = f"{MARK}={name}"
        self._complaints = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env=environment | {MARK: name},
        )
        self._unread = b""
        try:
            answer = self._answer(START_SECONDS)
            if answer != "ready":
                raise RouteFailed(f"said {answer!r} at its start")
            self._signal(signal.SIGSTOP)
        except BaseException:
            self.end()
            raise

    def times(self, operation: str, floats: int, calls: int) -> list[float]:
        """One round, in microseconds. Throws RouteFailed or WrongAnswer."""
        times = json.loads(self._ask(f"{operation} {floats} {calls}"))
        if len(times) != calls:
            raise RouteFailed(f"answered {calls} calls with {len(times)} times")
        return [float(each) for each in times]

    def copied_bytes(self) -> int:
        """Of all calls so far. Throws RouteFailed."""
        return int(self._ask("copied"))

    def _signal(self, number: int) -> None:
        descendants.signal_all(descendants.with_variable(self._mark), number)

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        self._signal(signal.SIGCONT)
        try:
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
            return self._answer(ROUND_SECONDS)
        except BrokenPipeError:
            raise RouteFailed("ended between two rounds") from None
        finally:
            self._signal(signal.SIGSTOP)

    def _answer(self, seconds: float) -> str:
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._unread:
            left = max(0, deadline - time.monotonic())
            if not select.select([self._process.stdout], [], [], left)[0]:
                raise RouteFailed(f"no answer in {seconds:.0f} s")
            part = os.read(self._process.stdout.fileno(), 1 << 16)
            if not part:
                raise RouteFailed(f"ended in the middle: {self._last_complaint()}")
            self._unread += part
        line, self._unread = self._unread.split(b"\n", 1)
        text = line.decode()
        if text.startswith("wrong "):
            raise WrongAnswer(text.removeprefix("wrong "))
        if text.startswith("failed "):
            raise RouteFailed(text.removeprefix("failed "))
        return text

    def _last_complaint(self) -> str:
        self._complaints.seek(0)
        lines = self._complaints.read().decode(errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"

    def end(self) -> None:
        """Waits, within a limit, until the process has cleaned up, then kills it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._signal(signal.SIGCONT)
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._complaints.close()
