#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The same calls through isopool and through other ways to send tensors to another Python process.

Every route has its own process. In each case the routes take turns, round by round, so that all see
the same load of the machine; all other routes are stopped meanwhile. Prints rows for bench/run.py;
a route that could not be measured has a row with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import textwrap
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import descendants
from operations import OPERATIONS
from route_process import RouteFailed, RouteProcess, WrongAnswer
from routes import ROUTES, YARDSTICK, Home, RouteEntry

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
SIZES = {"64 B": 16, "1 MB": 250_000, "10 MB": 2_500_000, "100 MB": 25_000_000}
NOT_INSTALLED = "not installed, scripts/bench peers --install-peers does it"


@dataclass(frozen=True)
class Effort:
    rounds: int
    round_microseconds: float
    warming_calls: int
    fewest_calls: int
    most_calls: int


# The fewest calls are for 100 MB through a pipe, a second or more each.
QUICK = Effort(
    rounds=3, round_microseconds=80_000, warming_calls=2, fewest_calls=1, most_calls=200
)
FULL = Effort(
    rounds=7, round_microseconds=200_000, warming_calls=3, fewest_calls=2, most_calls=1000
)


def main() -> int:
    options = parse_arguments()
    descendants.adopt_orphans()
    try:
        with ExitStack() as ends:
            status = compare(options, ends)
    finally:
        left = descendants.kill_all()
        if left:
            announce(f"killed {left} processes that the peers had left")
    return status


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--packages", type=Path, required=True, help="folder with calls.pt")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--only", default="", help="only cases whose name contains this text")
    names = [entry.name for entry in ROUTES]
    parser.add_argument(
        "--routes",
        nargs="+",
        choices=names,
        default=names,
        metavar="NAME",
        help="only these; the ratios are to the first one (default: all, ratios to isopool)",
    )
    parser.add_argument(
        "--build-folder",
        type=Path,
        default=os.environ.get("ISOPOOL_BUILD_FOLDER", REPOSITORY / "build" / "release"),
        help="isopool's (default: %(default)s)",
    )
    parser.add_argument(
        "--peers-venv",
        type=Path,
        default=os.environ.get("ISOPOOL_PEERS_VENV", REPOSITORY / "build" / "peers-venv"),
        help="the virtual environment with the peers' packages (default: %(default)s)",
    )
    options = parser.parse_args()
    for name in ("packages", "build_folder", "peers_venv"):
        setattr(options, name, getattr(options, name).absolute())
    return options


def compare(options: argparse.Namespace, ends: ExitStack) -> int:
    processes = start_routes(options, ends)
    yardstick = options.routes[0]
    if yardstick not in processes:
        return 1
    effort = QUICK if options.quick else FULL
    status = 0
    for operation in OPERATIONS:
        for size, floats in SIZES.items():
            case = f"{operation} {size}"
            if options.only not in case:
                continue
            rounds, right = measure(case, operation, floats, processes, effort)
            report(case, rounds, yardstick)
            if not right:
                status = 1
    describe_routes(options.routes)
    return status


def start_routes(options: argparse.Namespace, ends: ExitStack) -> dict[str, RouteProcess]:
    processes: dict[str, RouteProcess] = {}
    missing: list[str] = []
    for entry in (entry for entry in ROUTES if entry.name in options.routes):
        announce(f"starting {entry.name}")
        if entry.home is Home.PEERS and not is_installed(entry, options):
            print_not_measured(entry.name, NOT_INSTALLED)
            missing.append(entry.name)
            continue
        try:
            process = RouteProcess(entry.name, *command_of(entry, options))
        except RouteFailed as failure:
            not_measured(entry.name, str(failure))
            continue
        ends.callback(process.end)
        processes[entry.name] = process
    if missing:
        complain(f"{', '.join(missing)}: {NOT_INSTALLED}")
    return processes


def is_installed(entry: RouteEntry, options: argparse.Namespace) -> bool:
    return any(options.peers_venv.glob(f"lib/python*/site-packages/{entry.package}"))


def command_of(entry: RouteEntry, options: argparse.Namespace) -> tuple[list[str], dict[str, str]]:
    """The route's command and environment. Throws RouteFailed if it can't be started."""
    environment = os.environ | {
        "ISOPOOL_LOG": os.environ.get("ISOPOOL_LOG", "error"),
        # On every route: one core for the caller, one for the worker.
        "OMP_NUM_THREADS": "1",
    }
    program, *arguments = entry.program
    if entry.home is Home.BUILD:
        file = options.build_folder / "bench" / program
        if not file.exists():
            raise RouteFailed(f"not built: no {file}")
        return [str(file), "--packages", str(options.packages), *arguments], environment
    interpreter = sys.executable
    if entry.home is Home.PEERS:
        interpreter = str(options.peers_venv / "bin" / "python")
    else:
        folders = [str(HERE)]
        folders += map(str, options.build_folder.glob("lib/python*/site-packages"))
        environment["PYTHONPATH"] = os.pathsep.join(folders)
    return [interpreter, str(HERE / program), *arguments], environment


@dataclass
class Rounds:
    """What one route needed in one case."""

    times: list[list[float]]
    #: The bytes that all `calls` copied; None if the route does not count them.
    copied: int | None
    calls: int = 0


def measure(
    case: str, operation: str, floats: int, processes: dict[str, RouteProcess], effort: Effort
) -> tuple[dict[str, Rounds], bool]:
    """Also returns False if an answer was wrong. Removes routes that fail from `processes`."""
    right = True
    calls: dict[str, int] = {}
    rounds: dict[str, Rounds] = {}
    for turn in range(-1, effort.rounds):
        for name in list(processes):
            announce(f"{case}: {name}, " + (f"round {turn + 1}" if turn >= 0 else "warming up"))
            try:
                if turn < 0:
                    times = processes[name].times(operation, floats, effort.warming_calls)
                    fitting = int(effort.round_microseconds / min(times))
                    calls[name] = max(effort.fewest_calls, min(effort.most_calls, fitting))
                    rounds[name] = Rounds([], 0 if counts_copies(name) else None)
                else:
                    measure_round(processes[name], operation, floats, calls[name], rounds[name])
            except (RouteFailed, WrongAnswer) as failure:
                wrong = isinstance(failure, WrongAnswer)
                right = right and not wrong
                not_measured(name, f"{case}: {'wrong ' if wrong else ''}{failure}")
                del processes[name]
                rounds.pop(name, None)
    return rounds, right


def measure_round(
    process: RouteProcess, operation: str, floats: int, calls: int, rounds: Rounds
) -> None:
    # Some calls that warm up the route precede the measured calls of a turn.
    cold = calls // 10
    before = process.copied_bytes() if rounds.copied is not None else 0
    rounds.times.append(process.times(operation, floats, cold + calls)[cold:])
    if rounds.copied is not None:
        rounds.copied += process.copied_bytes() - before
        rounds.calls += cold + calls


def counts_copies(name: str) -> bool:
    return next(entry for entry in ROUTES if entry.name == name).counts_copies


def report(case: str, rounds: dict[str, Rounds], yardstick: str) -> None:
    for metric, share in (("p50", 0.5), ("p99", 0.99)):
        medians = {
            name: [quantile(times, share) for times in each.times] for name, each in rounds.items()
        }
        for name, values in medians.items():
            value = statistics.median(values)
            quartiles = statistics.quantiles(values, n=4)
            compared = bool(medians.get(yardstick)) and name != yardstick
            print_row(
                route=name,
                case=case,
                metric=metric,
                unit="us",
                value=value,
                spread=(quartiles[2] - quartiles[0]) / 2,
                ratio_to=yardstick if compared else "",
                ratio=value / statistics.median(medians[yardstick]) if compared else None,
            )
    for name, each in rounds.items():
        if each.copied is not None:
            print_row(
                route=name,
                case=case,
                metric="bytes_copied",
                unit="B",
                value=each.copied / each.calls,
                spread=None,
                ratio_to="",
                ratio=None,
            )


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def not_measured(route: str, reason: str) -> None:
    complain(f"{route} is not measured: {reason}")
    print_not_measured(route, reason)


def complain(text: str) -> None:
    print(f"peers: {text}", file=sys.stderr, flush=True)


def print_not_measured(route: str, reason: str) -> None:
    print_row(
        route=route,
        case=reason,
        metric="not measured",
        unit="",
        value=None,
        spread=None,
        ratio_to="",
        ratio=None,
    )


def describe_routes(names: list[str]) -> None:
    print("\nWhat a call does on each route (copies of a large payload):")
    for entry in (entry for entry in ROUTES if entry.name in names):
        print(f"  {entry.name}")
        for line in textwrap.wrap(f"{entry.hops}. Copies: {entry.copies}", 110):
            print(f"    {line}")
    sys.stdout.flush()


def print_row(**fields: object) -> None:
    print(json.dumps({"bench": "peers", **fields}), flush=True)


def announce(text: str) -> None:
    print(f"# {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
