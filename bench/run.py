#!/usr/bin/env python3
"""Runs isopool's benchmarks and prints what they measured.

  roundtrip  one call through the C++ API, beside the same call in-process and through
             ProcessPoolExecutor and torch.multiprocessing
  memory     what a worker, and a large model on eight workers, cost in memory
  start      how fast a pool is ready and a dead worker is replaced
  async      what asynchronous calls cost, and how many two workers answer
  sharing    three programs on one supervisor: greedy, sparse, and killed at random
  sandbox    what the levels of a worker's sandbox cost
  all        (also when nothing is named) all of them

Every number is a median; behind it half the distance between the quartiles of its repetitions.
Ratios are taken within one run, on a machine that should be quiet.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BENCHES = ("roundtrip", "memory", "start", "async", "sharing", "sandbox")
Row = dict[str, Any]


def main() -> int:
    options = parse_arguments()
    build = Path(os.environ.get("ISOPOOL_BUILD_FOLDER", HERE.parent / "build" / "release"))
    if not (build / "bench" / "roundtrip").exists():
        print(f"bench: no programs in {build}/bench; scripts/bench builds them", file=sys.stderr)
        return 1
    packages = build / "bench" / "packages"
    run([sys.executable, str(HERE / "package_models.py"), "--out", str(packages)], "packages")
    rows: list[Row] = []
    for bench in options.benches:
        rows += measure(bench, build, packages, options)
    if options.json:
        document = {"machine": machine(), "rows": rows}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
        print(f"wrote {len(rows)} rows to {options.json}")
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("benches", nargs="*", metavar="BENCH", help=", ".join((*BENCHES, "all")))
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--only", default="", help="of roundtrip, cases with this text in the name")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows as JSON")
    options = parser.parse_args()
    unknown = set(options.benches) - {*BENCHES, "all"}
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}: {', '.join(BENCHES)} or all")
    if options.json and not options.json.resolve().parent.is_dir():
        parser.error(f"--json {options.json}: there is no such folder")
    if not options.benches or "all" in options.benches:
        options.benches = list(BENCHES)
    return options


def measure(bench: str, build: Path, packages: Path, options: argparse.Namespace) -> list[Row]:
    command = [str(build / "bench" / bench), "--packages", str(packages)]
    if options.quick and bench != "memory":
        command.append("--quick")
    if bench == "roundtrip":
        selection = ["--only", options.only] if options.only else []
        rows = run(command + selection, bench)
        quick = ["--quick"] if options.quick else []
        rows += run([sys.executable, str(HERE / "peers.py"), *quick, *selection], bench)
        compare_peers(rows)
    else:
        rows = run(command, bench)
    print_table(bench, rows)
    return rows


def run(command: list[str], bench: str) -> list[Row]:
    """The rows that a program prints; what it announces becomes the progress line."""
    rows: list[Row] = []
    environment = os.environ | {"ISOPOOL_LOG": os.environ.get("ISOPOOL_LOG", "error")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                rows.append(json.loads(line))
            elif line.startswith("# "):
                progress(f"{bench}: {line[2:].strip()}")
            else:
                print(line, end="")
    progress("")
    if process.returncode != 0:
        sys.exit(f"bench: {' '.join(command)} ended with {process.returncode}")
    return rows


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def compare_peers(rows: list[Row]) -> None:
    """Peers get the ratio to isopool's call with the same input outside shared memory."""
    ours = {
        (row["case"], row["metric"]): row["value"] for row in rows if row["route"] == "isopool"
    }
    for row in rows:
        if row["route"] in ("isopool", "in-process"):
            continue
        own = ours.get((row["case"], row["metric"]))
        if own:
            row["ratio_to"], row["ratio"] = "isopool", row["value"] / own


def print_table(bench: str, rows: list[Row]) -> None:
    cells = [("case", "route", "metric", "value", "spread", "ratio")]
    cells += [
        (
            row["case"],
            row["route"],
            row["metric"],
            f"{number(row['value'])} {row['unit']}",
            "" if row["spread"] is None else f"± {number(row['spread'])}",
            "" if row["ratio"] is None else f"{row['ratio']:.3g} x {row['ratio_to']}",
        )
        for row in sorted(rows, key=lambda row: [r["case"] for r in rows].index(row["case"]))
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    print(f"\n{bench}")
    shown = None
    for line in cells:
        case = "" if line[0] == shown else line[0]
        shown = line[0]
        columns = [case.ljust(widths[0]), line[1].ljust(widths[1]), line[2].ljust(widths[2])]
        columns += [line[column].rjust(widths[column]) for column in (3, 4)] + [line[5]]
        print("  " + "  ".join(columns).rstrip())


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def machine() -> dict[str, Any]:
    model = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


if __name__ == "__main__":
    sys.exit(main())
