# SPDX-License-Identifier: BSD-3-Clause
"""Programs whose models end their workers, on one shared supervisor with programs that must not notice them."""

import os
import pathlib
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import isopool
import pytest
from torch.package import PackageExporter

SEED = int(os.environ.get("ISOPOOL_TEST_SEED", random.randrange(1 << 30)))
# On a machine that runs other tests, too.
PATIENCE = 20.0
LENGTH = 8.0

MODELS = """
import os, threading

def doubles():
    return lambda x: 2 * x

def dies_in_call():
    return lambda x: os._exit(3)

class DiesAtUnload:
    def __call__(self, x):
        return x
    def __del__(self):
        os.abort()

def dies_at_unload():
    return DiesAtUnload()

def dies_in_a_thread():
    threading.Timer(0.03, os.abort).start()
    return lambda x: threading.Event().wait(10)
"""

KINDS = ["dies_at_load", "dies_in_call", "dies_in_warm_up", "dies_at_unload", "dies_in_a_thread"]

# Says what each failure was, and goes on for ever.
CRASHER = """
import random, sys, time
import isopool

file, kind, address, seed = sys.argv[1:]
chance = random.Random(int(seed))
while True:
    try:
        with isopool.Pool(2, address=address) as pool:
            for _ in range(chance.randrange(1, 40)):
                try:
                    if kind == "dies_at_load":
                        pool.load(f"{file}.pt", pickle=("model", "dies.pkl"), timeout=30)
                    model = pool.load(f"{file}:{kind.replace('warm_up', 'call')}", timeout=30)
                    if kind == "dies_in_warm_up":
                        model.warm_up(1)
                    elif kind != "dies_at_unload":
                        model(1)
                    model.unload()
                    del model
                except isopool.PoolUnavailable:
                    raise
                except isopool.Error as error:
                    print(type(error).__name__, flush=True)
    except isopool.Error as error:
        print(type(error).__name__, error, flush=True)
        time.sleep(chance.random() / 10)
"""


class DiesWhenLoaded:
    def __reduce__(self):  # type: ignore[no-untyped-def]
        return os.abort, ()


@pytest.fixture
def address(tmp_path: pathlib.Path) -> Iterator[str]:
    address = str(tmp_path / "socket")
    words = [os.environ["ISOPOOL_SUPERVISOR"], "--listen", address, "--workers", "2", "--spares", "1"]
    words += ["--restart-limit", "4", "--quarantine", "60s"]
    with open(tmp_path / "log", "w") as log, subprocess.Popen(words, stderr=log) as process:
        while not os.path.exists(address) and process.poll() is None:
            time.sleep(0.01)
        yield address
        process.kill()


def load(pool: isopool.Pool, file: pathlib.Path) -> isopool.Model:
    """A model that works. Code of another program may crash in a thread while the load runs, which is not idempotent."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return pool.load(f"{file}:doubles", timeout=PATIENCE).with_options(idempotent=True)
        except isopool.WorkerLost as error:
            assert error.started and time.monotonic() < end, error


class Victim(threading.Thread):
    """Calls a model that works, without a pause, until the end."""

    def __init__(self, pool: isopool.Pool, file: pathlib.Path, end: float) -> None:
        super().__init__()
        self.pool, self.file, self.end = pool, file, end
        self.calls, self.longest, self.wrong = 0, 0.0, ""

    def run(self) -> None:
        try:
            model = load(self.pool, self.file)
            while time.monotonic() < self.end:
                began = time.monotonic()
                if model(self.calls) != 2 * self.calls:
                    self.wrong = "a wrong value"
                    return
                self.longest = max(self.longest, time.monotonic() - began)
                self.calls += 1
        except Exception as error:
            self.wrong = repr(error)


def test_programs_whose_models_end_workers_harm_no_other_program(address: str, tmp_path: pathlib.Path) -> None:
    print(f"ISOPOOL_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    file = tmp_path / "app.py"
    file.write_text(MODELS)
    with PackageExporter(f"{file}.pt") as exporter:
        exporter.extern("posix")
        exporter.save_pickle("model", "dies.pkl", DiesWhenLoaded())
    pools = [isopool.Pool(chance.randrange(1, 3), address=address) for _ in range(2)]
    kinds = ["dies_at_load", *chance.sample(KINDS, 2)]
    crashers = [
        subprocess.Popen(
            [sys.executable, "-c", CRASHER, str(file), kind, address, str(chance.randrange(1000))],
            stdout=subprocess.PIPE,
            text=True,
        )
        for kind in kinds
    ]
    try:
        end = time.monotonic() + LENGTH
        victims = [Victim(pool, file, end) for pool in pools]
        for victim in victims:
            victim.start()
        attached = []
        while time.monotonic() < end:
            began = time.monotonic()
            with isopool.Pool(2, address=address) as late:
                assert load(late, file)(4) == 8
            attached.append(time.monotonic() - began)
            time.sleep(chance.random())
        for victim in victims:
            victim.join()
    finally:
        for crasher in crashers:
            crasher.kill()
    said = dict(zip(kinds, [crasher.communicate()[0] for crasher in crashers], strict=True))
    log = (tmp_path / "log").read_text()
    print(f"{kinds}: {[(each.calls, each.longest) for each in victims]}, attached in {attached}")
    assert [each.wrong for each in victims] == ["", ""], log[-5000:]
    assert all(each.calls > 10 for each in victims)
    assert max([*attached, *(each.longest for each in victims)]) < PATIENCE
    assert "stays empty" not in log, log[-5000:]
    # The other kinds complete a call in each worker before it dies: a step of a session.
    assert "PoolUnavailable this program gets no further worker for " in said["dies_at_load"], log[-5000:]
    assert "its model 'app.py.pt:model/dies.pkl' ended 4 workers in a row" in said["dies_at_load"]
    assert "ms: its model 'app.py.pt:model/dies.pkl' ended 4 workers in a row" in log, log[-5000:]
