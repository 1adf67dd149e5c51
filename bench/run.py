#!/usr/bin/env python3
"""Runs isopool's benchmarks and prints what they measured.

{benches}
  all        (also when nothing is named) all of them

Every number is a median; behind it half the distance between the quartiles of its repetitions.
Ratios are taken within one run, on a machine that should be quiet.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Bench:
    """One question, and what answers it: programs of the build folder or scripts of this folder."""

    question: str
    runs: tuple[tuple[str, ...], ...]  # each a program and its arguments
    options: tuple[str, ...] = ("--quick", "--packages")  # those that the programs accept
    megabytes: tuple[int, int] | None = None  # of the large model: normally, and with --quick


BENCHES = {
    "roundtrip": Bench(
        "one call through the C++ API, beside the same call in-process",
        (("roundtrip",), ("roundtrip", "--asleep")),
        ("--quick", "--packages", "--only"),
    ),
    "session": Bench("single steps on one worker, and results let go", (("session",),)),
    "scaling": Bench("a Python-bound model on 1 and 2 workers, and in threads", (("scaling",),)),
    "peers": Bench(
        "the same calls through what else there is; --install-peers first installs it",
        (("peers/run.py",),),
        ("--quick", "--packages", "--only"),
    ),
    "python": Bench(
        "models and isopool.Executor from Python beside C++ and other executors, and what kills do",
        (("executors.py",),),
        ("--quick", "--packages"),
    ),
    "batch": Bench(
        "batch jobs beside a bare loop, with bad items, and the same by other means",
        (("batch/run.py",),),
        ("--quick", "--only"),
    ),
    "memory": Bench(
        "what a worker, a large model on eight workers, and writes to it cost",
        (("memory",),),
        ("--packages",),
        (1000, 200),
    ),
    "start": Bench(
        "how fast a pool is ready, a death is reported, a worker is replaced",
        (("start",),),
        ("--quick", "--packages"),
        (500, 200),
    ),
    "idle": Bench("what an idle pool costs", (("idle",),), ("--quick",)),
    "async": Bench("what asynchronous calls cost, and how many two workers answer", (("async",),)),
    "sharing": Bench("three programs on one supervisor: greedy, sparse, killed", (("sharing",),)),
    "endurance": Bench(
        "a hundred million calls from three programs under attack: right, and without growth?",
        (("endurance",),),
    ),
    "sandbox": Bench("what the levels of a worker's sandbox cost", (("sandbox",),)),
}


def main() -> int:
    options = parse_arguments()
    build = Path(os.environ.get("ISOPOOL_BUILD_FOLDER", HERE.parent / "build" / "release"))
    if not (build / "bench" / "roundtrip").exists():
        print(f"bench: no programs in {build}/bench; scripts/bench builds them", file=sys.stderr)
        return 1
    packages = build / "bench" / "packages"
    large = sorted({megabytes_of(BENCHES[name], options.quick) for name in options.benches} - {0})
    package = [sys.executable, str(HERE / "package_models.py"), "--out", str(packages)]
    run([*package, "--megabytes", *map(str, large)], "packages")
    rows: list[Row] = []
    measured = 0
    file = options.json.open("w") if options.json else None
    for name in options.benches:
        rows += measure(name, build, packages, options)
        print_table(name, rows[measured:])
        if file:
            # Writes at once, so that an interrupted run keeps its measurements.
            file.writelines(json.dumps(row) + "\n" for row in rows[measured:])
            file.flush()
        measured = len(rows)
    if file:
        file.close()
        print(f"wrote {len(rows)} rows to {options.json}")
    if options.report:
        import report  # only this module needs matplotlib

        for page in report.write(rows, options.benches, command_line(options)):
            print(f"wrote {page}")
    return 0


def parse_arguments() -> argparse.Namespace:
    width = max(map(len, BENCHES))
    benches = "\n".join(f"  {name:{width}}  {bench.question}" for name, bench in BENCHES.items())
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description=__doc__.format(benches=benches),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("benches", nargs="*", metavar="NAME", help=", ".join((*BENCHES, "all")))
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, smaller models")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="of roundtrip, peers and batch: cases with this text in the name"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the rows, one JSON object a line"
    )
    parser.add_argument(
        "--report",
        action="store_true",
        help="put the rows of these benchmarks into docs/performance.md, its plots and its data, and README",
    )
    options = parser.parse_args()
    unknown = set(options.benches) - {*BENCHES, "all"}
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}: {', '.join(BENCHES)} or all")
    if options.json and not options.json.resolve().parent.is_dir():
        parser.error(f"--json {options.json}: there is no such folder")
    if options.report and (options.quick or options.only):
        parser.error("--report publishes figures: measure in full, without --quick and --only")
    if not options.benches or "all" in options.benches:
        options.benches = list(BENCHES)
    return options


def command_line(options: argparse.Namespace) -> str:
    """The command that repeats this measurement, without options for other output files."""
    return " ".join(["scripts/bench", *options.benches, "--report"])


def megabytes_of(bench: Bench, quick: bool) -> int:
    return bench.megabytes[1 if quick else 0] if bench.megabytes else 0


def measure(name: str, build: Path, packages: Path, options: argparse.Namespace) -> list[Row]:
    bench = BENCHES[name]
    arguments = []
    if "--packages" in bench.options:
        arguments += ["--packages", str(packages)]
    if options.quick and "--quick" in bench.options:
        arguments.append("--quick")
    if options.only and "--only" in bench.options:
        arguments += ["--only", options.only]
    if bench.megabytes:
        arguments += ["--megabytes", str(megabytes_of(bench, options.quick))]
    rows: list[Row] = []
    for program, *own in bench.runs:
        if program.endswith(".py"):
            command = [sys.executable, str(HERE / program), "--build-folder", str(build)]
        else:
            command = [str(build / "bench" / program)]
        rows += run([*command, *own, *arguments], name)
    return rows


def run(command: list[str], bench: str) -> list[Row]:
    """Runs a program. Returns the rows that it prints; shows its announcements as progress."""
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


def print_table(bench: str, rows: list[Row]) -> None:
    cells = [("case", "route", "metric", "value", "spread", "ratio")]
    cells += [
        (
            row["case"],
            row["route"],
            row["metric"],
            "" if row["value"] is None else f"{number(row['value'])} {row['unit']}",
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


if __name__ == "__main__":
    sys.exit(main())
