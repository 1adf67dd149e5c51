# SPDX-License-Identifier: BSD-3-Clause
"""Writes measured rows into docs/performance.md: tables between its markers, plots, and the data.
Writes the most important ones into README.md.

Only the parts of the benchmarks that were run are replaced, so that each part is from one run and
names it. The table of goals and the plots are made of all rows in the resulting data file.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from goals import GOALS
from matplotlib import pyplot
from matplotlib.axes import Axes
from peers.routes import ROUTES
from summary import tables

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGE = DOCS / "performance.md"
DATA = DOCS / "performance" / "rows.jsonl"
LATENCY = DOCS / "performance" / "latency.svg"
THROUGHPUT = DOCS / "performance" / "throughput.svg"
Row = dict[str, Any]

BYTES = {"B": 1, "KB": 1e3, "MB": 1e6}


def write(rows: list[Row], benches: list[str], command: str) -> list[Path]:
    """Returns the files that were written."""
    kept = read_data()
    merged = [row for row in kept if row["bench"] not in benches] + rows
    page = PAGE.read_text()
    for bench in benches:
        own = [row for row in rows if row["bench"] == bench]
        table = LAYOUTS.get(bench, as_list)(own)
        page = replace_part(PAGE, page, bench, f"{provenance(command)}\n\n{table}")
    page = replace_part(PAGE, page, "goals", goals_table(merged))
    readme = replace_part(README, README.read_text(), "summary", tables(merged))
    DATA.parent.mkdir(exist_ok=True)
    DATA.write_text("".join(json.dumps(row) + "\n" for row in merged))
    PAGE.write_text(page)
    README.write_text(readme)
    # Equal rows must make an identical file.
    matplotlib.rcParams["svg.hashsalt"] = "isopool"
    plot_latency(merged)
    plot_throughput(merged)
    return [PAGE, README, DATA, LATENCY, THROUGHPUT]


def read_data() -> list[Row]:
    if not DATA.exists():
        return []
    return [json.loads(line) for line in DATA.read_text().splitlines()]


def replace_part(path: Path, page: str, part: str, text: str) -> str:
    first = f"<!-- From here made by scripts/bench --report: {part} -->"
    last = f"<!-- To here made by scripts/bench --report: {part} -->"
    if page.count(first) != 1 or page.count(last) != 1:
        raise SystemExit(f"bench: {path} has not one line {first} and one line {last}")
    before, rest = page.split(first)
    _, after = rest.split(last)
    return f"{before}{first}\n\n{text}\n\n{last}{after}"


def provenance(command: str) -> str:
    processor = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            processor = line.split(":", 1)[1].strip()
            break
    virtual = " (virtual machine)" if " hypervisor" in Path("/proc/cpuinfo").read_text() else ""
    facts = [
        f"{processor}{virtual}",
        f"{len(os.sched_getaffinity(0))} cores",
        f"{platform.system()} {platform.release()}",
        f"Python {platform.python_version()}",
        f"torch {importlib.metadata.version('torch')}",
    ]
    date = datetime.now(timezone.utc).date().isoformat()
    return f"`{command}`, {date}, on {', '.join(facts)}."


# ---- tables -----------------------------------------------------------------------------------


def markdown(header: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    header = list(header)
    rule = ["---"] * len(header)
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, rule, *map(list, lines)])


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def with_spread(row: Row) -> str:
    spread = "" if row["spread"] is None else f" ± {number(row['spread'])}"
    return f"{number(row['value'])}{spread} {row['unit']}".rstrip()


def ratio(row: Row) -> str:
    return "" if row["ratio"] is None else f"{row['ratio']:.3g} x {row['ratio_to']}"


def as_list(rows: list[Row]) -> str:
    """A table with one line for each row."""
    lines = [
        (row["case"], row["route"], row["metric"], with_spread(row), ratio(row)) for row in rows
    ]
    return markdown(("case", "route", "metric", "median", "ratio"), lines)


def by_case(*columns: tuple[str, str, str]) -> Callable[[list[Row]], str]:
    """A table with a line for each case and these columns: heading, route and metric."""

    def table(rows: list[Row]) -> str:
        found = {(row["case"], row["route"], row["metric"]): row for row in rows}

        def cell(case: str, route: str, metric: str) -> str:
            row = found.get((case, route, metric))
            return "" if row is None else with_spread(row)

        cases = dict.fromkeys(row["case"] for row in rows)
        return markdown(
            ("case", *(heading for heading, _, _ in columns)),
            ((case, *(cell(case, *column[1:]) for column in columns)) for case in cases),
        )

    return table


def by_route(rows: list[Row]) -> str:
    """A table with a line for each route and what it does in a call, and a column for each case:
    p50 and p99, and the ratio of the p50s."""
    found = {(row["case"], row["route"], row["metric"]): row for row in rows}
    cases = list(dict.fromkeys(row["case"] for row in rows if row["metric"] == "p50"))

    def cell(case: str, route: str) -> str:
        p50, p99 = (found.get((case, route, metric)) for metric in ("p50", "p99"))
        if p50 is None:
            return ""
        text = with_spread(p50)
        if p99 is not None:
            text += f", p99 {number(p99['value'])}"
        return text if p50["ratio"] is None else f"{text}; {p50['ratio']:.3g} x"

    measured = {row["route"] for row in rows}
    return markdown(
        ("route", *cases, "copies of a large payload", "what carries a call"),
        (
            (route.name, *(cell(case, route.name) for case in cases), route.copies, route.hops)
            for route in ROUTES
            if route.name in measured
        ),
    )


COMPARED = (
    ("in-process p50", "in-process", "p50"),
    ("isopool p50", "isopool", "p50"),
    ("p99", "isopool", "p99"),
    ("p50 over in-process", "isopool", "over_in_process"),
    ("p99 over in-process", "isopool", "p99_over_in_process"),
)
LAYOUTS: dict[str, Callable[[list[Row]], str]] = {
    "roundtrip": by_case(
        *COMPARED,
        ("bytes copied", "isopool", "bytes_copied"),
        ("bandwidth", "isopool", "bandwidth"),
        ("memcpy's", "memcpy", "bandwidth"),
        ("empty slots, p50", "empty slots", "p50"),
        ("empty slots, p99", "empty slots", "p99"),
        ("rate", "isopool", "rate"),
    ),
    "peers": by_route,
}


def goals_table(rows: list[Row]) -> str:
    lines = []
    for goal in GOALS:
        row = goal.row(rows)
        limit = f"{'>=' if goal.at_least else '<='} {goal.limit:g}"
        says = f"{goal.case}: {goal.says or goal.metric}"
        if row is None:
            lines.append((goal.bench, says, limit, "not measured", ""))
            continue
        unit = f" x {row['ratio_to']}" if goal.of_ratio else f" {row['unit']}".rstrip()
        figure = f"{goal.figure(row):.3g} x" if goal.of_ratio else with_spread(row)
        verdict = "met" if goal.met(row) else "**missed**"
        lines.append((goal.bench, says, limit + unit, figure, verdict))
    return markdown(("benchmark", "goal", "", "measured", ""), lines)


# ---- plots ------------------------------------------------------------------------------------


def save(path: Path) -> None:
    pyplot.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    pyplot.close()


def plot_latency(rows: list[Row]) -> None:
    figure, panels = pyplot.subplots(1, 2, figsize=(12, 5), sharey=True)
    titles = {
        "identity": "gives the input back",
        "made": "makes a result of the same size (x + 1)",
    }
    for panel, (operation, title) in zip(panels, titles.items(), strict=True):
        curves: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for row in rows:
            match = re.fullmatch(rf"{operation} (\d+) (B|KB|MB) (shared|copied)", row["case"])
            if match is None or row["metric"] != "p50":
                continue
            if row["bench"] not in ("roundtrip", "peers"):
                continue
            # The bench of the peers measures isopool's calls again, for its own ratios.
            if row["bench"] == "peers" and row["route"] == "isopool":
                continue
            if row["route"] == "in-process" and match[3] == "copied":
                continue
            size = float(match[1]) * BYTES[match[2]]
            curves.setdefault((row["route"], match[3]), []).append((size, row["value"]))
        for (route, input_kind), points in curves.items():
            label = route if route == "in-process" else f"{route}, input {input_kind}"
            weight = 2.5 if route == "isopool" else 1.2
            style = "--" if route == "in-process" else "-"
            panel.plot(*zip(*sorted(points), strict=True), style, lw=weight, marker="o", label=label)
        panel.set(xscale="log", yscale="log", xlabel="bytes of the input", title=title)
        panel.grid(alpha=0.3)
        panel.legend(fontsize="small")
    panels[0].set_ylabel("one call, p50, microseconds")
    figure.suptitle("Latency against size")
    save(LATENCY)


def plot_throughput(rows: list[Row]) -> None:
    axes: Axes
    _, axes = pyplot.subplots(figsize=(7, 4.5))
    curves: dict[str, list[tuple[int, float, float]]] = {}
    for row in rows:
        match = re.fullmatch(r"(\d+) (workers?|threads?)(, (\d+) callers)?", row["case"])
        if match is None or row["bench"] != "scaling" or row["metric"] != "rate":
            continue
        # Only as many callers as workers; the table also shows more callers.
        if match[4] not in (None, match[1]):
            continue
        curves.setdefault(row["route"], []).append((int(match[1]), row["value"], row["spread"]))
    for route, points in curves.items():
        counts, rates, spreads = zip(*sorted(points), strict=True)
        axes.errorbar(counts, rates, yerr=spreads, marker="o", capsize=3, label=route)
    axes.set(
        xlabel="workers or threads, each with a caller of its own",
        ylabel="calls a second",
        title="Throughput of a Python-bound transformer",
        ylim=(0, None),
    )
    axes.grid(alpha=0.3)
    axes.legend()
    save(THROUGHPUT)
