# SPDX-License-Identifier: BSD-3-Clause
"""The loop that every route written in Python runs in its own process: ask, time, check.

The process first prints "ready". It reads lines "OPERATION FLOATS CALLS" from stdin and answers
each with one line on stdout: the JSON list of the calls' microseconds, or "wrong WHAT" if an answer
is wrong, or "failed REASON". A route that counts the bytes that it copied answers the line "copied"
with their number. At the end of stdin the process ends, with everything that the route started.

A call lasts from an ordinary array or tensor in the caller until the caller has the answer. Each
input has the call's number in three places. Outside the measured time each answer's type, shape and
these places are checked, and at the end of a round the whole answer.
"""

from __future__ import annotations

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from types import TracebackType

import numpy
from operations import ADDED, Data

# A call that takes longer than this counts as failed.
CALL_SECONDS = 60


class WrongAnswer(Exception):
    pass


class Route(AbstractContextManager["Route"], ABC):
    """A way to run an operation in another process. After `with` begins, it answers calls."""

    def source(self, floats: int) -> numpy.ndarray:
        """Makes the array, each element 1.5, in which every call's input is marked. Not measured."""
        return numpy.full(floats, 1.5, dtype=numpy.float32)

    def input(self, source: numpy.ndarray) -> Data:
        """Makes the caller's input before the call. Not measured."""
        return source

    @abstractmethod
    def call(self, operation: str, x: Data) -> Data:
        """Makes one call. Measured. Raises if there is no answer after CALL_SECONDS."""

    def array(self, answer: Data) -> numpy.ndarray:
        """Converts the answer for the check. Not measured."""
        return answer

    def copied_bytes(self) -> int:
        """Of all calls so far. Only for routes whose table entry says that they count them."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends everything that the route started."""
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def measure(route: Route, operation: str, floats: int, calls: int) -> list[float]:
    source = route.source(floats)
    marks = [0, (floats - 1) // 2, floats - 1]
    added = ADDED[operation]
    times = []
    for number in range(calls):
        source[marks] = number + 2
        x = route.input(source)
        begin = time.perf_counter_ns()
        answer = route.call(operation, x)
        times.append((time.perf_counter_ns() - begin) / 1000)
        got = route.array(answer)
        right = got.shape == source.shape and got.dtype == source.dtype
        right = right and bool((got[marks] == number + 2 + added).all())
        if right and number == calls - 1:
            right = numpy.array_equal(got, source + added)
        if not right:
            raise WrongAnswer(f"answer to call {number} of {operation} with {floats} floats")
        # Returns a result's shared memory before the next call.
        del x, answer, got
    return times


def serve(make_route: type[Route]) -> None:
    """Answers the lines of stdin until its end. Output of libraries goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        with make_route() as route:
            print("ready", file=answers)
            for line in sys.stdin:
                if line.strip() == "copied":
                    print(route.copied_bytes(), file=answers)
                    continue
                operation, floats, calls = line.split()
                times = measure(route, operation, int(floats), int(calls))
                print(json.dumps(times), file=answers)
    except WrongAnswer as error:
        print(f"wrong {error}", file=answers)
        raise
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"failed {text}", file=answers)
        raise
