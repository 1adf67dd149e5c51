# SPDX-License-Identifier: BSD-3-Clause
"""Executors of Python programs, side by side: isopool's, CPython's, loky's, pebble's, Ray's.

Each runs in a process of its own, in turns; loky, pebble and Ray with the Python of --install-peers, if that is there.
Beside them one call of a model: from Python and through the C++ API, both with inputs in shared memory, and through
torch.multiprocessing and a Ray actor.

  a call      submit(f, x).result(), one after the other
  map         list(map(f, range(1000))), for each call
  numpy 10 MB submit(f, array).result(), where f returns its argument
  two workers how many times as many calls of a Python-bound function two workers make as one (threads: as one thread)
  kills       random workers are killed under load: what happens to the other calls
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import concurrent.futures
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROUTES = ("isopool", "ProcessPoolExecutor", "loky", "pebble", "Ray", "threads")
MODEL_ROUTES = (
    "isopool, shared input",
    "isopool.Pool from Python, shared input",
    "torch.multiprocessing",
    "Ray actor",
)
# Ray's workers belong to a service of its own.
KILL_ROUTES = ("isopool", "isopool asyncio", "ProcessPoolExecutor", "loky", "pebble")
PEERS = ("loky", "pebble", "Ray")
# A future that has no outcome after so many seconds counts as hung.
PATIENCE = 10


def square(x: int) -> int:
    return x * x


def same(x: Any) -> Any:
    return x


def python_bound(count: int) -> int:
    total = 0
    for number in range(count):
        total += number % 7
    return total


def short_work(x: int) -> int:
    time.sleep(0.002)
    return x * x


class RayExecutor:
    """The three functions that the cases use, on Ray's tasks."""

    def __init__(self, workers: int) -> None:
        import ray

        ray.init(num_cpus=workers, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
        self._ray = ray
        self._tasks: dict[Any, Any] = {}

    def submit(self, function: Callable[..., Any], *args: Any) -> Any:
        if function not in self._tasks:
            self._tasks[function] = self._ray.remote(function)
        return self._tasks[function].remote(*args).future()

    def map(self, function: Callable[..., Any], items: Any) -> list[Any]:
        return [future.result() for future in [self.submit(function, each) for each in items]]

    def shutdown(self) -> None:
        self._ray.shutdown()


class PebbleExecutor:
    def __init__(self, workers: int) -> None:
        from pebble import ProcessPool

        self._pool = ProcessPool(workers)

    def submit(self, function: Callable[..., Any], *args: Any) -> Any:
        return self._pool.schedule(function, args=args)

    def map(self, function: Callable[..., Any], items: Any) -> list[Any]:
        return [future.result() for future in [self.submit(function, each) for each in items]]

    def shutdown(self) -> None:
        self._pool.stop()
        self._pool.join()


class AsyncioCalls:
    """Calls of models that coroutines of one event loop await."""

    def __init__(self, workers: int) -> None:
        import isopool

        self.pool = isopool.Pool(workers)
        self._models: dict[Any, Any] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def submit(self, function: Callable[..., Any], *args: Any) -> Any:
        if function not in self._models:
            self._models[function] = self.pool.load(function)
        return asyncio.run_coroutine_threadsafe(self._await(self._models[function], args), self._loop)

    async def _await(self, model: Any, args: tuple[Any, ...]) -> Any:
        return await model.aio(*args)

    def shutdown(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self.pool.close()


def make(route: str, workers: int) -> Any:
    if route == "isopool asyncio":
        return AsyncioCalls(workers)
    if route == "isopool":
        import isopool

        return isopool.Executor(workers)
    if route == "threads":
        return concurrent.futures.ThreadPoolExecutor(workers)
    if route == "ProcessPoolExecutor":
        return concurrent.futures.ProcessPoolExecutor(workers)
    if route == "loky":
        import loky

        return loky.ProcessPoolExecutor(workers)
    return PebbleExecutor(workers) if route == "pebble" else RayExecutor(workers)


def microseconds(run: Callable[[], object]) -> float:
    began = time.perf_counter_ns()
    run()
    return (time.perf_counter_ns() - began) / 1000


def measure(route: str, quick: bool) -> dict[str, list[float]]:
    import numpy

    repetitions = 3 if quick else 11
    executor = make(route, 2)
    array = numpy.ones(1_250_000)
    for _ in range(100):
        executor.submit(square, 5).result()
    found: dict[str, list[float]] = collections.defaultdict(list)
    for _ in range(repetitions):
        found["a call"].append(statistics.median(microseconds(lambda: executor.submit(square, 5).result()) for _ in range(300)))
        found["map"].append(microseconds(lambda: list(executor.map(square, range(1000)))) / 1000)
        found["numpy 10 MB"].append(
            statistics.median(microseconds(lambda: executor.submit(same, array).result()) for _ in range(5))
        )
    one = make(route, 1) if route != "Ray" else None
    for pool in (executor, one):
        if pool is not None:
            list(pool.map(python_bound, [1000] * 20))
    for _ in range(repetitions if one else 0):
        times = [microseconds(lambda pool=pool: list(pool.map(python_bound, [150_000] * 40))) for pool in (one, executor)]
        found["two workers"].append(times[0] / times[1])
    for pool in (executor, one):
        if pool is not None:
            pool.shutdown()
    return found


def children() -> list[int]:
    """The processes below this one that run tasks: those without children of their own."""
    found = []
    waiting = [os.getpid()]
    while waiting:
        process = waiting.pop()
        below: list[int] = []
        for task in Path(f"/proc/{process}/task").glob("*/children"):
            try:
                below += map(int, task.read_text().split())
            except OSError:
                pass
        waiting += below
        if not below and process != os.getpid():
            found.append(process)
    return found


def workers_of(route: str, executor: Any) -> list[int]:
    if route in ("isopool", "isopool asyncio"):
        pool = executor.pool if route == "isopool asyncio" else executor._calls._pool
        return [each.process_id for each in pool.statistics().workers if each.process_id]
    if route in ("ProcessPoolExecutor", "loky"):
        return list(executor._processes or {})
    return children()


def kill_under_load(route: str, kills: int) -> dict[str, int]:
    """What became of the calls. A pool that refuses calls is replaced by a new one."""
    count = {"calls": 0, "right": 0, "wrong": 0, "failed": 0, "hung": 0, "kills": 0, "new pools": 0}
    rng = random.Random(1)
    executor = make(route, 2)
    executor.submit(square, 2).result()
    flight: collections.deque[tuple[int, Any]] = collections.deque()
    number = 0
    next_kill = time.monotonic()
    while count["kills"] < kills:
        while len(flight) < 20:
            number += 1
            try:
                flight.append((number, executor.submit(short_work, number)))
                count["calls"] += 1
            except Exception:
                executor.shutdown()
                executor = make(route, 2)
                count["new pools"] += 1
        if time.monotonic() >= next_kill:
            workers = workers_of(route, executor)
            if workers:
                try:
                    os.kill(rng.choice(workers), signal.SIGKILL)
                    count["kills"] += 1
                except ProcessLookupError:
                    pass
            next_kill = time.monotonic() + rng.uniform(0.005, 0.03)
        settle(flight.popleft(), count)
    while flight:
        settle(flight.popleft(), count)
    executor.shutdown()
    return count


def settle(call: tuple[int, Any], count: dict[str, int]) -> None:
    number, future = call
    try:
        count["right" if future.result(PATIENCE) == number * number else "wrong"] += 1
    except (TimeoutError, concurrent.futures.TimeoutError):
        count["hung"] += 1
    except Exception:
        count["failed"] += 1


def python_of(route: str) -> str | None:
    if route not in PEERS:
        return sys.executable
    python = Path(os.environ.get("ISOPOOL_PEERS_VENV", "")) / "bin" / "python"
    return str(python) if python.is_file() else None


def row(case: str, route: str, metric: str, unit: str, values: list[float], base: float | None) -> None:
    value = statistics.median(values)
    spread = None
    if len(values) > 3:
        quartiles = statistics.quantiles(values)
        spread = (quartiles[2] - quartiles[0]) / 2
    fields = {"bench": "python", "route": route, "case": case, "metric": metric, "unit": unit, "value": value}
    to = "ProcessPoolExecutor"
    ratio = value / base if base and route != to else None
    print(json.dumps({**fields, "spread": spread, "ratio_to": to if ratio else "", "ratio": ratio}), flush=True)


def model_calls(options: argparse.Namespace) -> None:
    """Prints the rows of the benchmark of the peers as rows of this one."""
    command = [sys.executable, str(Path(__file__).parent / "peers" / "run.py"), "--packages", options.packages]
    command += ["--build-folder", options.build_folder, *["--quick"] * options.quick]
    command += ["--routes", *MODEL_ROUTES]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                line = json.dumps(json.loads(line) | {"bench": "python"}) + "\n"
            if line.startswith(("{", "#")):
                print(line, end="", flush=True)
    if process.returncode != 0:
        raise SystemExit(f"executors: {' '.join(command)} ended with {process.returncode}")


UNITS = {"a call": "us", "map": "us", "numpy 10 MB": "us", "two workers": "x"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-folder", default="build/release")
    parser.add_argument("--packages", help="folder with calls.pt")
    parser.add_argument("--quick", action="store_true")
    routes = sorted({*ROUTES, *KILL_ROUTES})
    parser.add_argument("--route", choices=routes, help="only this one, in this process; prints what it found")
    parser.add_argument("--kills", type=int, default=0, help="with --route: only the kills, so many")
    options = parser.parse_args()
    if options.route and options.kills:
        print(json.dumps(kill_under_load(options.route, options.kills)))
        return 0
    if options.route:
        print(json.dumps(measure(options.route, options.quick)))
        return 0
    packages = next(Path(options.build_folder, "lib").glob("python3*/site-packages"))
    environment = os.environ | {"PYTHONPATH": str(packages.resolve())}

    def run(route: str, *arguments: str) -> Any:
        python = python_of(route)
        if python is None:
            return None
        print(f"# {route}", flush=True)
        command = [python, __file__, "--route", route, *arguments]
        try:
            ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, timeout=900, check=True)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            print(f"{route}: not measured: {error}")
            return None
        return json.loads(ended.stdout.splitlines()[-1])

    model_calls(options)
    found = {route: run(route, *["--quick"] * options.quick) for route in ROUTES}
    for case, unit in UNITS.items():
        base = statistics.median(found["ProcessPoolExecutor"][case])
        for route, values in found.items():
            if values and values.get(case):
                row(case, route, "p50" if unit == "us" else "speed", unit, values[case], base)
    kills = 50 if options.quick else 1000
    for route in KILL_ROUTES:
        counts = run(route, "--kills", str(kills))
        for metric in ("calls", "right", "failed", "wrong", "hung", "new pools"):
            if counts:
                row(f"{kills} kills", route, metric, "", [counts[metric]], None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
