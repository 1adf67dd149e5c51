# SPDX-License-Identifier: BSD-3-Clause
"""The functions that batch jobs call in this benchmark. Importable by each peer, without torch."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

Row = dict[str, Any]

POISONS = ("crash", "exit", "memory", "hang", "raise")
# Every so many items one is poisoned, with each poison in turn.
POISON_EVERY = 100


def spun(seconds: float) -> tuple[float, float]:
    """Works for this time; returns when it began and ended, on a clock that all processes share."""
    began = time.clock_gettime(time.CLOCK_MONOTONIC)
    while (now := time.clock_gettime(time.CLOCK_MONOTONIC)) - began < seconds:
        pass
    return began, now


def one_millisecond(row: Row) -> Row:
    began, ended = spun(0.001)
    return {"began": began, "ended": ended}


def ten_milliseconds(row: Row) -> Row:
    began, ended = spun(0.010)
    return {"began": began, "ended": ended}


def python_bound(row: Row) -> Row:
    """About a millisecond of Python, however many processes run."""
    began = time.clock_gettime(time.CLOCK_MONOTONIC)
    total = 0
    for number in range(25_000):
        total += number % 7
    return {"total": total, "began": began, "ended": time.clock_gettime(time.CLOCK_MONOTONIC)}


def same(row: Row) -> Row:
    return {"n": row["n"]}


def small_batch(rows: list[Row]) -> list[Row]:
    return [{"n": row["n"]} for row in rows]


def poison_of(n: int) -> str:
    return POISONS[n // POISON_EVERY % len(POISONS)] if n % POISON_EVERY == 50 else ""


def square(row: Row) -> Row:
    """What the clean run and the poisoned one have in common."""
    n = row["n"]
    spun(0.005)
    return {"square": n * n}


def poisoned(row: Row) -> Row:
    n = row["n"]
    poison = poison_of(n)
    if poison == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if poison == "exit":
        os._exit(3)
    if poison == "memory":
        # Beyond the limit that isopool sets; without one, what a program gets that asks for too much.
        raise_memory()
    if poison == "hang":
        time.sleep(100_000)
    if poison == "raise":
        raise ValueError(f"item {n} can't be read")
    return square(row)


def raise_memory() -> None:
    bytearray(1 << 46)
