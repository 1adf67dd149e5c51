# SPDX-License-Identifier: BSD-3-Clause
"""Processes of a job are killed at random instants: what comes out is what an undisturbed run gives."""

import os
import pathlib
import random
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from batch_command import LIMIT, JobFolder, Row, Running, job_folder, numbers, squares, wait_until

# 200 by hand.
KILLS = int(os.environ.get("ISOPOOL_BATCH_KILLS", "10"))
SEED = int(os.environ.get("ISOPOOL_BATCH_KILL_SEED", time.time_ns() % 1_000_000))

ITEMS = 120
BAD = {5: "segfault", 17: "raise", 18: "exit", 40: "raise", 77: "segfault", 119: "raise"}


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[JobFolder]:
    with job_folder(tmp_path) as made:
        made.code()
        yield made


def reasons(quarantine: dict[str, Row]) -> dict[str, tuple[object, ...]]:
    names = ("reason", "signal", "exit_code", "type", "message", "chunk", "item")
    return {identity: tuple(row[name] for name in names) for identity, row in quarantine.items()}


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_kills_of_all_processes_at_random_instants(folder: JobFolder, format: str) -> None:
    random.seed(SEED)
    # Long enough that kills also hit items, not only the start of Python.
    folder.jsonl(numbers(ITEMS, BAD, seconds=0.02))
    line = ["app.py:squares", "in.jsonl", "--batch-size", "4", "--chunk-size", "10", "--format", format]
    begin = time.monotonic()
    folder.run(*line, "-o", "out", code=3)
    takes = time.monotonic() - begin
    undisturbed = folder.parts()
    aside = reasons(folder.quarantine())
    assert len(aside) == len(BAD)
    assert folder.rows() == squares(ITEMS, BAD)

    hits = runs = 0
    while hits < KILLS // 2:
        runs += 1
        folder.out = folder / f"out-{runs}"
        while True:
            running = folder.start(*line, "-o", folder.out.name)
            try:
                running.process.wait(random.uniform(0, takes))
                break
            except subprocess.TimeoutExpired:
                pass
            # The driver alone: the kernel ends the others. Or all: the driver first.
            if random.random() < 0.3:
                running.kill(running.process.pid)
            else:
                running.kill_all()
            if running.process.wait(LIMIT) != -signal.SIGKILL:
                break
            hits += 1
            if hits % 5 == 0:
                # Now and then it may end, so that later kills find other states.
                running = folder.start(*line, "-o", folder.out.name)
                running.process.wait(LIMIT)
                break
        ended = running.wait()
        assert ended.code == 3, (SEED, ended)
        assert folder.parts() == undisturbed, SEED
        assert reasons(folder.quarantine()) == aside, SEED
        assert folder.leftovers() == [], SEED
    print(f"{hits} kills in {runs} jobs of {takes:.1f} s ({format}), seed {SEED}")


def test_the_supervisor_is_killed(folder: JobFolder) -> None:
    count = 12
    folder.jsonl(numbers(count, {4: "raise"}))
    folder.close_gates([f"i{n}" for n in range(5, count)])
    running = folder.start("app.py:square", "in.jsonl", "-o", "out", "--chunk-size", "3")
    wait_until(lambda: len(folder.trace("begin")) > len(folder.trace("end")) + 1, "an item that waits")
    [supervisor] = [process for process, name in running.processes().items() if name == "isopoold"]
    assert running.kill(supervisor)
    folder.open_all_gates()
    ended = running.wait()
    assert ended.code == 3, ended
    assert folder.rows() == squares(count, [4])
    assert set(folder.quarantine()) == {"i4"}
    running.wait_for_no_process()


def test_the_supervisor_is_killed_while_a_worker_names_an_item(folder: JobFolder) -> None:
    folder.code(
        """
        class Rows:
            def __len__(self): return 3
            def __getitem__(self, index):
                row = {"id": f"i{index}", "n": index, "bad": "raise" if index == 1 else None}
                with open(os.path.join(HERE, "trace")) as file:
                    has_failed = "begin i1 " in file.read()
                if index == 1 and has_failed:
                    trace("named", row)
                    gate = os.path.join(HERE, "gates", "name")
                    if os.path.exists(gate):
                        open(gate, "rb").close()
                return row
        def data(): return Rows()
        """
    )
    (folder / "trace").touch()
    folder.close_gates(["name"])
    running = folder.start("app.py:square", "app.py:data", "-o", "out", "--retries", "0", "--format", "jsonl")
    wait_until(lambda: folder.trace("named") != [], "a worker that names the item")
    [supervisor] = [process for process, name in running.processes().items() if name == "isopoold"]
    assert running.kill(supervisor)
    folder.open_all_gates()
    ended = running.wait()
    assert ended.code == 3, ended
    assert folder.rows() == squares(3, [1])
    assert set(folder.quarantine()) == {"i1"}
    running.wait_for_no_process()


def test_a_worker_that_others_kill_costs_no_item(folder: JobFolder) -> None:
    count = 60
    folder.jsonl(numbers(count, seconds=0.02))
    running = folder.start("app.py:square", "in.jsonl", "-o", "out", "--chunk-size", "15", "--json")
    kills = 0
    for _ in range(5):
        wait_for_more(folder, running)
        begun = folder.trace("begin")
        if running.ended():
            break
        victim = begun[-1]
        kills += running.kill(folder.worker_of(victim))
        # An item that is hit twice in a row would be set aside.
        wait_for_result(folder, running, victim)
    ended = running.wait()
    assert kills > 0
    assert ended.code == 0, ended
    assert folder.rows() == squares(count)
    assert ended.events[-1]["event"] == "end"
    running.wait_for_no_process()


def wait_for_more(folder: JobFolder, running: Running) -> None:
    done = len(folder.trace("end"))
    wait_until(lambda: len(folder.trace("end")) >= done + 4 or running.ended(), "further items")


def wait_for_result(folder: JobFolder, running: Running, item: str) -> None:
    wait_until(lambda: item in folder.trace("end") or running.ended(), f"the result of {item}")


def test_workers_that_end_soon_cost_no_item(folder: JobFolder) -> None:
    # In a thread of its own: the worker ends in a call, or between two. Each begins with the item that was hit.
    folder.code(
        """
        import threading

        class Dies:
            calls = 0
            def __call__(self, row):
                self.calls += 1
                if self.calls == 4:
                    threading.Thread(target=os.kill, args=(os.getpid(), 9)).start()
                return {"square": row["n"] ** 2}
        """
    )
    folder.jsonl(numbers(40))
    folder.run("app.py:Dies", "in.jsonl", "-o", "out", "--chunk-size", "10", code=0)
    assert folder.rows() == squares(40)
    assert not folder.quarantine()
