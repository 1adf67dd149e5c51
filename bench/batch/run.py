# SPDX-License-Identifier: BSD-3-Clause
"""Batch jobs: what `isopool batch` costs beside a bare loop, and what becomes of bad items.

  overhead     the time from the first item's beginning to the last one's end, in one worker, beside a loop in one
               process, which reads the same JSON lines, calls the same function for 1 or 10 ms, and writes JSON lines
  two workers  the rate of a Python-bound function with two workers, beside one
  memory       what driver and workers have in the first and in the last part of a million items
  poison       10,000 items, 100 of them poisoned in five ways: the results, and the time beside a clean run
  peers        the same items by other means: how many results each gives
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import items

HERE = Path(__file__).resolve().parent
PEERS = ("ProcessPoolExecutor", "pebble", "joblib", "datasets.map", "Ray Data")
NEEDED = {"ProcessPoolExecutor": "", "pebble": "pebble", "joblib": "joblib", "datasets.map": "datasets", "Ray Data": "ray"}
TIMEOUT = 0.5
# A peer that gives no further answer for so long hangs.
PATIENCE = 60


def announce(text: str) -> None:
    print(f"# {text}", flush=True)


def row(route: str, case: str, metric: str, unit: str, values: list[float], to: str = "", base: float | None = None) -> None:
    value = statistics.median(values)
    spread = None
    if len(values) > 2:
        quartiles = statistics.quantiles(values)
        spread = (quartiles[2] - quartiles[0]) / 2
    ratio = value / base if base else None
    fields = {"bench": "batch", "route": route, "case": case, "metric": metric, "unit": unit}
    print(json.dumps({**fields, "value": value, "spread": spread, "ratio_to": to if ratio else "", "ratio": ratio}), flush=True)


class Bench:
    def __init__(self, command: str, folder: Path, quick: bool) -> None:
        self._command = command
        self._folder = folder
        self._quick = quick
        self._number = 0

    def inputs(self, count: int) -> Path:
        file = self._folder / f"{count}.jsonl"
        if not file.exists():
            with file.open("w") as out:
                out.writelines(f'{{"id":{n},"n":{n}}}\n' for n in range(count))
        return file

    def job(self, function: str, count: int, *options: str) -> tuple[Path, float]:
        """Runs a job in a new folder; returns that and the seconds of the whole command."""
        self._number += 1
        output = self._folder / f"out-{self._number}"
        command = [self._command, f"{HERE / 'items.py'}:{function}", str(self.inputs(count)), "-o", str(output), *options]
        began = time.monotonic()
        process = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if process.returncode not in (0, 3):
            raise SystemExit(f"batch: {' '.join(command)} ended with {process.returncode}")
        return output, time.monotonic() - began

    def bare_loop(self, function: Any, count: int) -> float:
        began = time.clock_gettime(time.CLOCK_MONOTONIC)
        with self.inputs(count).open() as lines, (self._folder / "loop.jsonl").open("w") as out:
            for line in lines:
                row = json.loads(line)
                out.write(json.dumps({"id": row["id"], **function(row)}) + "\n")
        return time.clock_gettime(time.CLOCK_MONOTONIC) - began

    @staticmethod
    def rows(output: Path) -> list[dict[str, Any]]:
        return [json.loads(line) for part in sorted(output.glob("part-*.jsonl")) for line in part.open()]

    def worked(self, output: Path) -> float:
        """From the beginning of the first item to the end of the last one."""
        rows = self.rows(output)
        return float(max(row["ended"] for row in rows) - min(row["began"] for row in rows))

    def overhead(self) -> None:
        for function, name, count in (
            (items.one_millisecond, "1 ms an item", 2000 if self._quick else 10_000),
            (items.ten_milliseconds, "10 ms an item", 300 if self._quick else 2000),
        ):
            loops, jobs = [], []
            for turn in range(1 if self._quick else 5):
                announce(f"overhead, {name}: turn {turn + 1}")
                loops.append(self.bare_loop(function, count))
                jobs.append(self.worked(self.job(function.__name__, count, "--workers", "1")[0]))
            row("bare loop", name, "time", "s", loops)
            row("isopool", name, "time", "s", jobs)
            # Of turns, whose two parts ran right after each other.
            more = [100 * (job / loop - 1) for job, loop in zip(jobs, loops, strict=True)]
            row("isopool", name, "more time than the loop", "%", more)

    def two_workers(self) -> None:
        count = 2000 if self._quick else 10_000
        rates: dict[int, list[float]] = {1: [], 2: []}
        for turn in range(1 if self._quick else 5):
            for workers, found in rates.items():
                announce(f"{workers} workers: turn {turn + 1}")
                found.append(count / self.worked(self.job("python_bound", count, "--workers", str(workers))[0]))
        row("isopool", "1 worker", "rate", "items/s", rates[1])
        row("isopool", "2 workers", "rate", "items/s", rates[2], "1 worker", statistics.median(rates[1]))

    def memory(self) -> None:
        count = 100_000 if self._quick else 1_000_000
        # Batches of ten in the short run: it should last for some reports, one per second.
        batch = "10" if self._quick else "50"
        command = [self._command, f"{HERE / 'items.py'}:small_batch", str(self.inputs(count))]
        command += ["-o", str(self._folder / "memory"), "--workers", "2", "--batch-size", batch, "--json"]
        samples: list[tuple[int, float]] = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                event = json.loads(line)
                if event["event"] == "progress" and event["done"] < count:
                    # The workers' by the driver's account; the driver is no parent of theirs.
                    samples.append((event["done"], event["memory_bytes"] / 1e6 + resident(process.pid)))
        early = [size for done, size in samples if done <= count * 0.4]
        late = [size for done, size in samples if done > count * 0.6]
        if process.returncode != 0 or not early or not late:
            raise SystemExit(f"batch: {' '.join(command)} ended with {process.returncode} after {len(samples)} reports")
        row("isopool", f"{count:,} items", "memory early", "MB", early)
        row("isopool", f"{count:,} items", "memory late", "MB", late, "memory early", statistics.median(early))

    def poison(self) -> None:
        count = 1000 if self._quick else 10_000
        options = ("--workers", "2", "--timeout", f"{int(TIMEOUT * 1000)}ms", "--memory", "1GiB")
        clean, dirty = [], []
        output = self._folder
        for turn in range(1 if self._quick else 3):
            announce(f"poison: turn {turn + 1}")
            clean.append(self.job("square", count, *options)[1])
            output, seconds = self.job("poisoned", count, *options)
            dirty.append(seconds)
        results = {row["id"]: row["square"] for row in self.rows(output)}
        right = sum(results.get(n) == n * n for n in range(count))
        quarantine = [json.loads(line) for line in (output / "__job__" / "quarantine.jsonl").open()]
        reasons = {"crash": "crashed", "exit": "exited", "memory": "memory", "hang": "timeout", "raise": "raised"}
        named = sum(reasons.get(items.poison_of(int(each["id"]))) == each["reason"] for each in quarantine)
        # The workers wait side by side; each attempt of a hanging item waits for its whole time.
        hangs = sum(each["attempts"] for each in quarantine if each["reason"] == "timeout")
        waited = hangs * TIMEOUT / 2
        row("isopool", f"{count:,} items, clean", "time", "s", clean)
        row("isopool", f"{count:,} items, 1 % poisoned", "time", "s", dirty)
        less = [seconds - waited for seconds in dirty]
        row("isopool", f"{count:,} items, 1 % poisoned", "time less time-outs", "s", less, "clean", statistics.median(clean))
        row("isopool", f"{count:,} items, 1 % poisoned", "right results", "", [right])
        row("isopool", f"{count:,} items, 1 % poisoned", "right reasons", "", [named])

    def peers(self) -> None:
        count = 1000 if self._quick else 10_000
        ours = self.job("square", count, "--workers", "2")[1]
        row("isopool", f"{count:,} items by other means, clean", "time", "s", [ours])
        for route in PEERS:
            python = python_of(route)
            if python is None:
                print(f"{route}: not measured: scripts/bench batch --install-peers installs it")
                continue
            for function, case in (("square", "clean"), ("poisoned", "1 % poisoned")):
                announce(f"{route}: {case}")
                answers, seconds, error = self.peer(python, route, function, count)
                name = f"{count:,} items by other means, {case}"
                row(route, name, "results", "", [answers])
                if function == "square":
                    row(route, name, "time", "s", [seconds], "isopool", ours)
                elif error:
                    print(f"{route}, poisoned: {error}")

    def peer(self, python: str, route: str, function: str, count: int) -> tuple[int, float, str]:
        answers = self._folder / "answers"
        answers.write_text("")
        command = [python, str(HERE / "peers.py"), route, str(self.inputs(count)), function, str(answers)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True)
        began = last = time.monotonic()
        known = 0
        while process.poll() is None and time.monotonic() - last < PATIENCE:
            time.sleep(0.2)
            now = answers.stat().st_size
            if now != known:
                known, last = now, time.monotonic()
        hung = process.poll() is None
        with contextlib.suppress(ProcessLookupError):  # nothing of the peer is left
            os.killpg(process.pid, signal.SIGKILL)
        out = process.communicate()[0]
        squares = {n * n for n in range(count)}
        right = sum(int(line) in squares for line in answers.read_text().split())
        if hung:
            return right, time.monotonic() - began, f"no further answer in {PATIENCE} s"
        if not out:
            return right, time.monotonic() - began, "the program died"
        told = json.loads(out.splitlines()[-1])
        return right, told["seconds"], told["error"]


def resident(process: int) -> float:
    """MB of a process."""
    try:
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1000
    except OSError:
        pass  # it has just ended
    return 0


def python_of(route: str) -> str | None:
    if not NEEDED[route]:
        return sys.executable
    environment = Path(os.environ.get("ISOPOOL_PEERS_VENV", HERE.parents[1] / "build" / "peers-venv"))
    found = list(environment.glob(f"lib/python*/site-packages/{NEEDED[route]}"))
    return str(environment / "bin" / "python") if found else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-folder", default="build/release")
    parser.add_argument("--quick", action="store_true", help="fewer items and turns")
    parser.add_argument("--only", default="", help="only the cases whose name contains this text")
    options = parser.parse_args()
    command = str(Path(options.build_folder).resolve() / "libexec" / "isopool" / "isopool-batch")
    with tempfile.TemporaryDirectory(prefix="isopool-bench-batch-") as folder:
        bench = Bench(command, Path(folder), options.quick)
        for case in ("overhead", "two_workers", "memory", "poison", "peers"):
            if options.only in case:
                getattr(bench, case)()
    return 0


if __name__ == "__main__":
    sys.exit(main())
