# SPDX-License-Identifier: BSD-3-Clause
"""README's tables of measured numbers: the most important rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]

SIZES = ("64 B", "1 MB", "10 MB", "100 MB")
PEERS = (
    "ProcessPoolExecutor",
    "torch.multiprocessing",
    "Ray actor",
    "Triton, HTTP",
    "Triton, shared memory",
)
LATER = "the 500 MB model's later calls"


class Measured:
    """Finds rows by bench, case, metric and route."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = {
            (row["bench"], row["route"], row["case"], row["metric"]): row for row in rows
        }

    def row(self, bench: str, case: str, metric: str, route: str = "isopool") -> Row:
        try:
            return self._rows[bench, route, case, metric]
        except KeyError:
            raise SystemExit(
                f"bench: README needs {metric} of {case!r} on route {route}: run `scripts/bench"
                f" {bench} --report` first"
            ) from None

    def value(self, bench: str, case: str, metric: str = "p50", route: str = "isopool") -> float:
        return float(self.row(bench, case, metric, route)["value"])


def time(microseconds: float) -> str:
    if microseconds >= 1e6:
        return f"{microseconds / 1e6:.3g} s"
    if microseconds >= 1e3:
        return f"{microseconds / 1e3:.3g} ms"
    return f"{microseconds:.3g} us"


def span(values: Iterable[float]) -> str:
    known = sorted(values)
    return f"{known[0]:.2g} to {known[-1]:.2g} us"


def tables(rows: list[Row]) -> str:
    measured = Measured(rows)
    return "\n\n".join([calls(measured), peers(measured), the_rest(measured)])


def calls(measured: Measured) -> str:
    def trip(case: str) -> tuple[float, float, float]:
        return (
            measured.value("roundtrip", case, route="in-process"),
            measured.value("roundtrip", case),
            measured.value("roundtrip", case, "over_in_process"),
        )

    identities = [trip(f"identity {size} shared") for size in ("64 B", "1 MB", "100 MB")]
    inside, through, over = (span(trip[column] for trip in identities) for column in range(3))
    lines = [
        "| one call, p50 | in-process (CPython's C API) | isopool | on top | bytes copied |",
        "|---|---|---|---|---|",
        f"| identity, 64 B, 1 MB or 100 MB, in shared memory | {inside} | {through} | **{over}** | 0 |",
    ]
    for name, case, copied in (
        ("`x + 1`, 64 B", "made 64 B shared", "0"),
        ("`x + 1`, 1 MB", "made 1 MB shared", "0"),
        ("`x + 1`, 100 MB", "made 100 MB shared", "0"),
        ("`x + 1` that the model keeps, 1 MB", "kept 1 MB shared", "1.0 MB"),
    ):
        inside, through, over = map(time, trip(case))
        if trip(case)[2] <= 0:
            over = "none: shared memory is reused, fresh pages are not"
        lines.append(f"| {name} | {inside} | {through} | {over} | {copied} |")
    slowest = [
        measured.value("roundtrip", f"identity {size} shared", "p99")
        for size in ("64 B", "4 KB", "64 KB", "1 MB", "10 MB", "100 MB", "256 MB")
    ]
    return "\n".join(lines) + f"\n\np99 of the identity call: {span(slowest)}."


def peers(measured: Measured) -> str:
    heading = "the same `x + 1`, an ordinary tensor, C++ program"
    lines = [f"| {heading} | isopool | {' | '.join(PEERS)} |", "|---" * (2 + len(PEERS)) + "|"]
    for size in SIZES:
        cells = [time(measured.value("peers", f"made {size}"))]
        for peer in PEERS:
            row = measured.row("peers", f"made {size}", "p50", peer)
            cells.append(f"{time(row['value'])}, {row['ratio']:.2g} x")
        lines.append(f"| {size} | {' | '.join(cells)} |")
    return "\n".join(lines)


def the_rest(measured: Measured) -> str:
    lines = ["| scaling, memory, start, death | |", "|---|---|"]

    def line(name: str, *texts: str) -> None:
        lines.append(f"| {name} | {' / '.join(texts)} |")

    def rate(case: str, route: str = "isopool") -> str:
        return f"{measured.row('scaling', case, 'rate', route)['ratio']:.3g} x"

    line(
        "a Python-bound transformer, calls a second on two cores against one: workers / threads of"
        " one interpreter / TorchScript",
        rate("2 workers"),
        rate("2 threads", "in-process threads"),
        rate("2 threads", "TorchScript threads"),
    )

    def private(case: str) -> str:
        return f"{measured.value('memory', case, 'private'):.1f} MB"

    line(
        "private memory of a further worker: ready / after a small model's call",
        private("extra worker"),
        private("extra worker with a small model"),
    )
    pool = "8 workers, zygote and spare, "
    weights = measured.row("memory", pool + "1000 MB model", "pss_of_model")
    line(
        "eight workers, zygote and spare: without a model / with one of 1 GB (PSS)",
        f"{measured.value('memory', pool + 'no model', 'pss'):.0f} MB",
        f"{measured.value('memory', pool + '1000 MB model', 'pss'):,.0f} MB:"
        f" {weights['ratio']:.2f} x the weights",
    )

    def ready(case: str) -> str:
        return time(measured.value("start", case, "ready") * 1e3)

    line(
        "`import torch` / a pool of 1 ready / of 8 / of 8 when another pool runs",
        time(measured.value("start", "import torch", "time", "python") * 1e3),
        ready("pool of 1"),
        ready("pool of 8"),
        ready("pool of 8, another one runs"),
    )

    def after(case: str) -> str:
        return f"{measured.value('start', case):.1f} ms"

    line(
        "a worker's death until its caller has `WorkerLost`: SIGKILL / a crash, whose traceback"
        " comes with it",
        after("SIGKILL to the caller's error, 0.2 GB"),
        after("SIGSEGV to the caller's error, 0.2 GB"),
    )
    line(
        "kill until the replacement has answered a call / a model call / one that reads 500 MB of"
        " weights",
        after("kill to first call, from a spare"),
        after("kill to first model answer, from a spare"),
        f"{after('kill to first answer of a 500 MB model')}"
        f" (later ones {after(LATER)})",
    )
    pools = [f"pool of {workers}" for workers in (1, 8, 32)]
    share = max(abs(measured.value("idle", each, "core_share")) for each in pools)
    switches = max(measured.value("idle", each, "context_switches") for each in pools)
    line(
        "an idle pool of 1, 8 or 32 workers: share of a core / wake-ups a second",
        f"{round(share, 6):.2g} %",
        f"{switches:.2g}",
    )
    return "\n".join(lines)
