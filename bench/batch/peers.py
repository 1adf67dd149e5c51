# SPDX-License-Identifier: BSD-3-Clause
"""One batch job by other means, as their users write it: python peers.py ROUTE INPUT FUNCTION OUTPUT.

Prints {"answers": how many rows have a right result, "seconds": how long it took, "error": what the program got}.
The rows are read from JSON lines. Two worker processes. A route that hangs is ended by its caller, so each answer is
counted in OUTPUT (a line for each) as soon as the program has it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import items

Row = dict[str, Any]


def rows_of(path: str) -> list[Row]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def by_executor(path: str, function: Callable[[Row], Row]) -> Iterator[Row]:
    with ProcessPoolExecutor(2) as executor:
        futures = [executor.submit(function, row) for row in rows_of(path)]
        for future in futures:
            try:
                yield future.result()
            except Exception:
                pass


def by_pebble(path: str, function: Callable[[Row], Row]) -> Iterator[Row]:
    from pebble import ProcessPool

    with ProcessPool(2) as pool:
        futures = [pool.schedule(function, args=(row,), timeout=1) for row in rows_of(path)]
        for future in futures:
            try:
                yield future.result()
            except Exception:
                pass


def by_joblib(path: str, function: Callable[[Row], Row]) -> Iterator[Row]:
    from joblib import Parallel, delayed

    yield from Parallel(n_jobs=2, return_as="generator")(delayed(function)(row) for row in rows_of(path))


def by_datasets(path: str, function: Callable[[Row], Row]) -> Iterator[Row]:
    import datasets

    datasets.disable_progress_bars()
    made = datasets.Dataset.from_list(rows_of(path)).map(function, num_proc=2, load_from_cache_file=False)
    yield from made


def by_ray(path: str, function: Callable[[Row], Row]) -> Iterator[Row]:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield from ray.data.read_json(path, lines=True).repartition(32).map(function).iter_rows()


ROUTES = {
    "ProcessPoolExecutor": by_executor,
    "pebble": by_pebble,
    "joblib": by_joblib,
    "datasets.map": by_datasets,
    "Ray Data": by_ray,
}


def main(route: str, path: str, function: str, output: str) -> None:
    with open(output, "w", buffering=1) as file:
        began = time.monotonic()
        error = ""
        try:
            for row in ROUTES[route](path, getattr(items, function)):
                file.write(json.dumps(row["square"]) + "\n")
        except Exception as thrown:
            error = f"{type(thrown).__name__}: {str(thrown).splitlines()[0] if str(thrown) else ''}"
        print(json.dumps({"seconds": time.monotonic() - began, "error": error}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
