#!/usr/bin/env python3
"""The same calls through what Python users have: one worker process, input and result by value.

Prints rows like the C++ programs do. ProcessPoolExecutor carries numpy arrays (it pickles them),
torch.multiprocessing carries tensors through a pair of queues (it passes shared memory).
"""

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import numpy
import torch
import torch.multiprocessing

SIZES = {"64 B": 16, "1 MB": 250_000, "100 MB": 25_000_000}


def identity(x):  # type: ignore[no-untyped-def]
    return x


def add_one(x):  # type: ignore[no-untyped-def]
    return x + 1


OPERATIONS = {"identity": identity, "made (x + 1)": add_one}


def announce(subject: str) -> None:
    print(f"# {subject}", flush=True)


def measure(route: str, subject: str, call: Callable[[], object], calls: int, rounds: int) -> None:
    for _ in range(min(calls, 10)):
        call()
    p50, p99 = [], []
    for _ in range(rounds):
        times = []
        for _ in range(calls):
            begin = time.perf_counter_ns()
            call()
            times.append((time.perf_counter_ns() - begin) / 1000)
        times.sort()
        p50.append(times[len(times) // 2])
        p99.append(times[int(len(times) * 0.99)])
    for metric, values in (("p50", p50), ("p99", p99)):
        quartiles = statistics.quantiles(values, n=4) if len(values) > 1 else [0.0, 0.0, 0.0]
        row = {
            "bench": "roundtrip",
            "route": route,
            "case": subject,
            "metric": metric,
            "unit": "us",
            "value": statistics.median(values),
            "spread": (quartiles[2] - quartiles[0]) / 2,
            "ratio_to": "",
            "ratio": None,
        }
        print(json.dumps(row), flush=True)


def serve(requests, answers) -> None:  # type: ignore[no-untyped-def]
    torch.set_num_threads(1)
    while (request := requests.get()) is not None:
        name, x = request
        answers.put(OPERATIONS[name](x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--only", default="", help="only cases whose name contains this text")
    options = parser.parse_args()
    torch.set_num_threads(1)

    def repetitions(floats: int) -> tuple[int, int]:
        most = 200 if options.quick else 1000
        return max(3, min(most, 20_000_000 // (floats * 4 + 10_000))), 3 if options.quick else 9

    cases = [
        (operation, size, f"{operation} {size} outside")
        for operation in OPERATIONS
        for size in SIZES
        if options.only in f"{operation} {size} outside"
    ]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        for operation, size, subject in cases:
            announce(f"ProcessPoolExecutor: {subject}")
            array = numpy.full(SIZES[size], 1.5, dtype=numpy.float32)
            function = OPERATIONS[operation]
            call = lambda: pool.submit(function, array).result()  # noqa: E731
            measure("ProcessPoolExecutor", subject, call, *repetitions(SIZES[size]))

    torch_context = torch.multiprocessing.get_context("spawn")
    requests, answers = torch_context.Queue(), torch_context.Queue()
    worker = torch_context.Process(target=serve, args=(requests, answers), daemon=True)
    worker.start()
    for operation, size, subject in cases:
        announce(f"torch.multiprocessing: {subject}")
        tensor = torch.full((SIZES[size],), 1.5)

        def call() -> object:
            # A fresh tensor for each call: put() moves the storage itself into shared memory.
            requests.put((operation, tensor.clone()))
            return answers.get(timeout=60)

        measure("torch.multiprocessing", subject, call, *repetitions(SIZES[size]))
    requests.put(None)
    worker.join(10)


if __name__ == "__main__":
    main()
