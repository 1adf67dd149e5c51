#!/usr/bin/env python3
"""Sends requests to `service` at a paced rate, and compares each answer with the expected one."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import random
import socket
import sys
import threading
import time
from collections import Counter
from pathlib import Path

# How often each model is asked for, in relation to the others.
WEIGHTS = {
    "voice_script": 6,
    "voice_onnx": 6,
    "file_type": 6,
    "resnet": 4,
    "crystal_energy": 4,
    "text_writer": 4,
    "text_reader": 1,
}
# The answers were computed by the same operators on the same machine. TorchScript may fuse them
# after some calls, and the numbers then differ in their last digits.
RELATIVE, ABSOLUTE = 1e-3, 1e-5
ANSWER_TIME = 60.0  # seconds: longer than every deadline of the service


def same(found: object, expected: object) -> bool:
    """Equal texts, and numbers that differ by no more than the tolerance."""
    if isinstance(expected, dict):
        return (
            isinstance(found, dict)
            and found.keys() == expected.keys()
            and all(same(found[name], expected[name]) for name in expected)
        )
    if isinstance(expected, list):
        return (
            isinstance(found, list)
            and len(found) == len(expected)
            and all(same(*pair) for pair in zip(found, expected, strict=True))
        )
    if isinstance(expected, float):
        return isinstance(found, int | float) and math.isclose(
            found, expected, rel_tol=RELATIVE, abs_tol=ABSOLUTE
        )
    return found == expected


class Client:
    """One connection to the service. Connects when it is needed: the service may restart."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream: socket.SocketIO | None = None

    def ask(self, request: dict[str, object]) -> tuple[dict[str, object], list[object]]:
        """Returns the last line of the answer, and the items before it. Throws OSError."""
        try:
            if self._stream is None:
                connection = socket.socket(socket.AF_UNIX)
                connection.settimeout(ANSWER_TIME)
                connection.connect(str(self._path))
                self._stream = connection.makefile("rwb")
                connection.close()  # the stream keeps it open
            self._stream.write(json.dumps(request).encode() + b"\n")
            self._stream.flush()
            items: list[object] = []
            while True:
                line = self._stream.readline()
                if not line.endswith(b"\n"):
                    raise ConnectionResetError("the service has closed the connection")
                answer = json.loads(line)
                if "item" not in answer:
                    return answer, items
                items.append(answer["item"])
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        if self._stream is not None:
            with contextlib.suppress(OSError):  # what was not sent is lost with the service
                self._stream.close()
            self._stream = None


class Load:
    """Threads that ask, each with a connection, until stop(). Counts what they get, by model."""

    def __init__(self, path: Path, expected: dict[str, list[object]], rate: float, threads: int):
        self._path, self._expected = path, expected
        self._pause = threads / rate
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.counts: Counter[tuple[str, str]] = Counter()  # (model, "right" or what it was instead)
        self.examples: dict[str, str] = {}  # of each kind of error, the first text
        self.seconds: list[float] = []  # of right answers
        self._threads = [
            threading.Thread(target=self._run, args=(seed,), daemon=True) for seed in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def total(self, kind: str | None = None) -> int:
        with self._lock:
            return sum(n for (_, each), n in self.counts.items() if kind in (None, each))

    def _run(self, seed: int) -> None:
        random_numbers = random.Random(seed)
        names = list(self._expected)
        weights = [WEIGHTS[name] for name in names]
        client = Client(self._path)
        next_time = time.monotonic() + random_numbers.random() * self._pause
        while not self._stop.wait(max(0.0, next_time - time.monotonic())):
            # A request that took long delays the next one: they do not accumulate.
            next_time = max(next_time + self._pause, time.monotonic())
            model = random_numbers.choices(names, weights)[0]
            self._ask(client, model, random_numbers.randrange(len(self._expected[model])))
        client.close()

    def _ask(self, client: Client, model: str, index: int) -> None:
        begin = time.monotonic()
        text = ""
        try:
            answer, items = client.ask({"model": model, "input": index})
            if "error" in answer:
                kind, text = str(answer["error"]), str(answer["text"])
            else:
                right = same(answer["answer"], self._expected[model][index])
                right = right and items in ([], answer["answer"])
                kind, text = ("right", "") if right else ("WRONG", f"input {index}: {answer}")
        except TimeoutError:
            kind, text = "NoAnswer", f"{model}, input {index}: no answer within {ANSWER_TIME:g} s"
        except OSError as error:
            kind, text = "Disconnected", str(error)
        with self._lock:
            self.counts[model, kind] += 1
            if kind == "right":
                self.seconds.append(time.monotonic() - begin)
            else:
                self.examples.setdefault(kind, f"{model}: {text}")

    def table(self) -> str:
        """A row for each model, a column for each kind of outcome."""
        with self._lock:
            counts, times = dict(self.counts), sorted(self.seconds)
        kinds = ["right", "WRONG"] + sorted({kind for _, kind in counts} - {"right", "WRONG"})
        rows = [["model", "requests", *kinds]]
        for model in [*self._expected, "all"]:
            row = [sum(n for (m, k), n in counts.items() if m == model or model == "all")]
            for kind in kinds:
                row.append(
                    sum(n for (m, k), n in counts.items() if k == kind and model in (m, "all"))
                )
            rows.append([model, *map(str, row)])
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in rows
        ]
        if times:
            p50, p99 = (times[int(share * (len(times) - 1))] * 1e3 for share in (0.5, 0.99))
            lines.append(f"right answers: p50 {p50:.1f} ms, p99 {p99:.1f} ms")
        return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="made by package_models.py")
    parser.add_argument("--socket", type=Path, required=True, help="of the service")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=float, default=20, help="requests a second, of all threads")
    parser.add_argument("--threads", type=int, default=4)
    chosen = parser.parse_args()
    expected = json.loads((chosen.folder / "expected.json").read_text())
    load = Load(chosen.socket, expected, chosen.rate, chosen.threads)
    time.sleep(chosen.seconds)
    load.stop()
    print(load.table())
    for kind, text in load.examples.items():
        print(f"first {kind}: {text}")
    sys.exit(0 if load.total() == load.total("right") > 0 else 1)


if __name__ == "__main__":
    main()
