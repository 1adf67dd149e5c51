# SPDX-License-Identifier: BSD-3-Clause
"""The goals of isopool's performance. Each names the row that shows whether it is met."""

from __future__ import annotations

import dataclasses
from typing import Any

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Goal:
    """`case` and `metric` of isopool's row of `bench`. Its value or ratio must keep `limit`."""

    bench: str
    case: str
    metric: str
    limit: float
    at_least: bool = False  # else at most
    of_ratio: bool = False
    says: str = ""  # the text of the goal if the row's own name is not clear

    def row(self, rows: list[Row]) -> Row | None:
        for row in rows:
            key = (row["bench"], row["route"], row["case"], row["metric"])
            if key == (self.bench, "isopool", self.case, self.metric):
                return row
        return None

    def figure(self, row: Row) -> float:
        return float(row["ratio"] if self.of_ratio else row["value"])

    def met(self, row: Row) -> bool:
        figure = self.figure(row)
        return figure >= self.limit if self.at_least else figure <= self.limit


def _over(case: str, p50: float, p99: float | None = None) -> list[Goal]:
    goals = [Goal("roundtrip", case, "over_in_process", p50, says="p50 over in-process")]
    if p99 is not None:
        goals.append(
            Goal("roundtrip", case, "p99_over_in_process", p99, says="p99 over in-process")
        )
    return goals


GOALS = [
    *_over("identity 64 B shared", 3, 10),
    *_over("identity 100 MB shared", 3, 10),
    Goal("roundtrip", "identity 100 MB shared", "bytes_copied", 0, says="bytes copied"),
    *(
        Goal(
            "roundtrip",
            f"identity {size} copied",
            "bandwidth",
            0.8,
            at_least=True,
            of_ratio=True,
            says="bandwidth, of memcpy's",
        )
        for size in ("1 MB", "10 MB", "100 MB", "256 MB")
    ),
    *_over("identity 64 B shared, asleep", 60),
    *_over("identity 64 B shared, calls 10 ms apart", 60),
    *(Goal("session", step, "p50", 3) for step in ("attr", "Obj call", "toIValue")),
    Goal("session", "1000 releases", "round_trips", 0, says="round trips of their own"),
    Goal(
        "scaling", "2 workers", "rate", 1.95, at_least=True, of_ratio=True, says="calls a second"
    ),
    Goal("memory", "extra worker", "private", 5, says="private memory"),
    Goal(
        "memory",
        "8 workers, zygote and spare, 1000 MB model",
        "pss_of_model",
        1.05,
        of_ratio=True,
        says="PSS of the model",
    ),
    *(
        Goal(
            "start",
            f"pool of {workers}",
            "beyond_import_per_worker",
            6,
            says="ready, less import of torch, for each worker",
        )
        for workers in (1, 2, 8, 32)
    ),
    Goal("start", "kill to first call, by fork", "p50", 10),
    Goal("start", "kill to first call, from a spare", "p50", 1),
    *(
        Goal("start", f"{cause} to the caller's error, {size}", "p99", 1)
        for cause in ("SIGKILL", "SIGSEGV")
        for size in ("0.2 GB", "4.0 GB")
    ),
    *(Goal("idle", f"pool of {workers}", "core_share", 0.1) for workers in (1, 8, 32)),
    *(
        Goal("idle", f"pool of {workers}", "context_switches", 0, says="wake-ups")
        for workers in (1, 8, 32)
    ),
]
