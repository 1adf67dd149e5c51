# SPDX-License-Identifier: BSD-3-Clause
"""Programs whose models end their workers, on one shared supervisor with programs that must not notice them."""

import os
import pathlib
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import isopool
import pytest
from torch.package import PackageExporter

SEED = int(os.environ.get("ISOPOOL_TEST_SEED", random.randrange(1 << 30)))
# On a machine that runs other tests, too.
PATIENCE = 20.0
LENGTH = 8.0
# Until every program that has to be refused was: three more programs have to import torch first.
LONGEST = 90.0

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

def leaves_a_bomb():
    return lambda: threading.Timer(0.3, os.abort).start()

def is_slow():
    return lambda: threading.Event().wait(1)

def dies_when_made():
    os.abort()

def aborts():
    return lambda x: os.abort()

def aborts_at_2():
    return lambda x: x if x < 2 else os.abort()

def dies_in_a_thread():
    threading.Timer(0.03, os.abort).start()
    return lambda x: threading.Event().wait(10)
"""

KINDS = ["dies_at_load", "dies_when_made", "dies_in_call", "dies_in_warm_up", "dies_at_unload", "dies_in_a_thread"]

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
    """Calls a model that works, without a pause, until `end` is set."""

    def __init__(self, pool: isopool.Pool, file: pathlib.Path, end: threading.Event) -> None:
        super().__init__()
        self.pool, self.file, self.end = pool, file, end
        self.calls, self.longest, self.wrong = 0, 0.0, ""

    def run(self) -> None:
        try:
            model = load(self.pool, self.file)
            while not self.end.is_set():
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
    outputs = [tmp_path / f"{number}_{kind}" for number, kind in enumerate(kinds)]
    crashers = []
    for kind, output in zip(kinds, outputs, strict=True):
        words = [sys.executable, "-c", CRASHER, str(file), kind, address, str(chance.randrange(1000))]
        with open(output, "w") as stream:
            crashers.append(subprocess.Popen(words, stdout=stream))
    # A crash while a model is loaded, from a file or by value, is one in the thread of the call, so code of other
    # programs in the same worker does not matter. The others end workers by os._exit(), by a thread, or after a call.
    judged = [output for kind, output in zip(kinds, outputs, strict=True) if kind in ("dies_at_load", "dies_when_made")]

    def all_are_refused() -> bool:
        return all("PoolUnavailable this program gets no further worker for " in each.read_text() for each in judged)

    over = threading.Event()
    victims = [Victim(pool, file, over) for pool in pools]
    attached = []
    began = time.monotonic()
    try:
        for victim in victims:
            victim.start()
        while (length := time.monotonic() - began) < LENGTH or not (all_are_refused() or length > LONGEST):
            connecting = time.monotonic()
            with isopool.Pool(2, address=address) as late:
                assert load(late, file)(4) == 8
            attached.append(time.monotonic() - connecting)
            time.sleep(chance.random())
    finally:
        over.set()
        for victim in victims:
            victim.join()
        for crasher in crashers:
            crasher.kill()
            crasher.wait()
    log = (tmp_path / "log").read_text()
    print(f"{kinds}: {[(each.calls, each.longest) for each in victims]}, attached in {attached}")
    assert [each.wrong for each in victims] == ["", ""], log[-5000:]
    assert all(each.calls > 10 for each in victims)
    assert max([*attached, *(each.longest for each in victims)]) < PATIENCE
    assert "stays empty" not in log, log[-5000:]
    assert all_are_refused(), log[-5000:]
    assert "its model 'app.py.pt:model/dies.pkl' ended 4 workers in a row" in outputs[0].read_text()
    assert "on: its model 'app.py.pt:model/dies.pkl' ended 4 workers in a row" in log, log[-5000:]


def deaths_until_refused(step: Callable[[], object]) -> int | None:
    """How many steps lost their worker before one raised PoolUnavailable. None if none did."""
    for deaths in range(12):
        try:
            step()
        except isopool.WorkerLost:
            continue
        except isopool.PoolUnavailable:
            return deaths
    return None


def test_a_model_by_value_that_crashes_when_it_is_made_or_first_called_is_in_quarantine(
    address: str, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "app.py"
    file.write_text(MODELS)

    def first_call_of_a_session(model: isopool.Model) -> None:
        with model.session() as session:
            session(2)

    def makes_and_calls(pool: isopool.Pool) -> Callable[[], object]:
        return lambda: pool.load(f"{file}:aborts")(2)

    def calls_in_a_session(pool: isopool.Pool) -> Callable[[], object]:
        model = pool.load(f"{file}:aborts")
        return lambda: first_call_of_a_session(model)

    steps = [lambda pool: lambda: pool.load(f"{file}:dies_when_made"), makes_and_calls, calls_in_a_session]
    for step in steps:
        with isopool.Pool(2, address=address) as pool:
            deaths = deaths_until_refused(step(pool))
            # A worker that had the model before the quarantine may still be called.
            assert deaths is not None and 4 <= deaths <= 6, (tmp_path / "log").read_text()[-5000:]
    log = (tmp_path / "log").read_text()
    for name in ("dies_when_made", "aborts"):
        assert f"while it ran model 'app.py:{name}' of client " in log, log[-5000:]
        assert f"its model 'app.py:{name}' ended 4 workers in a row" in log, log[-5000:]


def test_a_session_that_crashes_after_a_call_puts_its_program_in_no_quarantine(
    address: str, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "app.py"
    file.write_text(MODELS)
    with isopool.Pool(2, address=address) as pool:
        model = pool.load(f"{file}:aborts_at_2")

        def crash() -> None:
            with model.session() as session:
                assert session(1) == 1
                session(2)

        assert deaths_until_refused(crash) is None, (tmp_path / "log").read_text()[-5000:]


def test_a_program_whose_threads_end_workers_is_kept_apart_and_no_other_is_in_quarantine(
    address: str, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "app.py"
    file.write_text(MODELS)
    over = threading.Event()
    with isopool.Pool(2, address=address) as hostile, isopool.Pool(2, address=address) as innocent:

        def attack() -> None:
            while not over.is_set():
                try:
                    hostile.load(f"{file}:leaves_a_bomb").call_on_all()  # answers, and its worker ends afterwards
                except isopool.Error:
                    pass

        attacker = threading.Thread(target=attack)
        attacker.start()
        try:
            lost, in_a_row = 0, 0
            end = time.monotonic() + 2 * PATIENCE
            while in_a_row < 6 and time.monotonic() < end:
                try:
                    innocent.load(f"{file}:is_slow")()
                    in_a_row += 1
                except isopool.WorkerLost:
                    lost, in_a_row = lost + 1, 0
        finally:
            over.set()
            attacker.join()
    log = (tmp_path / "log").read_text()
    print(f"{lost} workers lost")
    assert in_a_row == 6, log[-5000:]
    assert "; code of other programs had run in it, too, so it may have been theirs" in log, log[-5000:]
    assert "ms have passed without such a death (ISOPOOL_QUARANTINE), programs are kept apart: " in log, log[-5000:]
    assert "no further worker" not in log, log[-5000:]
