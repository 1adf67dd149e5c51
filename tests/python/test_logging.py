# SPDX-License-Identifier: BSD-3-Clause
"""What a program sees of its workers' log records, and of the ends that it gives to calls."""

import logging
import os
import queue

import isopool
import pytest
from programs import PATIENCE, run_program

SPEAK = """
import logging, sys, time

import isopool

log = logging.getLogger("model")

def speak():
    log.debug("a detail")
    log.info("loaded\\n2 layers")
    log.warning("a weight is old")
    log.error("no answer")
"""


def lines_of(setup: str, call: str = "executor.submit(speak).result()") -> list[str]:
    """The error stream of a program that sets logging up, makes an Executor and calls a worker."""
    done = run_program(f"{setup}\nwith isopool.Executor(1) as executor:\n    {call}", before=SPEAK)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def test_without_handlers_warnings_are_printed_as_python_does() -> None:
    assert lines_of("") == ["a weight is old", "no answer"]


def test_records_have_the_level_and_the_format_of_the_program() -> None:
    setup = "logging.basicConfig(level=logging.INFO, format='{levelname}:{name}:{message}', style='{')"
    expected = ["INFO:model:loaded", "2 layers", "WARNING:model:a weight is old", "ERROR:model:no answer"]
    assert lines_of(setup) == expected
    assert lines_of(setup + "; log.setLevel(logging.ERROR)") == expected[-1:]


def test_a_worker_that_lacks_isopool_has_the_settings_too() -> None:
    source = """
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
with isopool.Executor(1, sandbox="strict") as executor:
    executor.submit(speak).result()
"""
    done = run_program(source, before=SPEAK)
    assert "INFO loaded\n" in done.stderr, done.stderr


def test_an_initializer_may_set_other_handlers() -> None:
    setup = """
def begin():
    logging.basicConfig(level=logging.ERROR, format="worker: %(message)s")

logging.basicConfig(level=logging.INFO)
"""
    done = run_program(
        f"{setup}\nwith isopool.Executor(1, initializer=begin) as executor:\n    executor.submit(speak).result()",
        before=SPEAK,
    )
    assert done.stderr.splitlines() == ["worker: no answer"]


def test_a_logger_gets_records_with_their_levels() -> None:
    program = """
lines = []

def also():
    speak()
    print("<7>a number: <3>")

with isopool.Executor(1, logger=lambda *line: lines.append(line)) as executor:
    executor.submit(also).result()
for level, text in lines:
    if ", model isopool.Executor): " in text:
        print(level, text.partition("): ")[2])
"""
    done = run_program("logging.basicConfig(level=logging.INFO)" + program, before=SPEAK)
    assert done.stderr == ""
    expected = ["20 INFO:model:loaded", "20 2 layers", "30 WARNING:model:a weight is old", "40 ERROR:model:no answer"]
    assert done.stdout.splitlines() == [*expected, "10 a number: <3>"]


@pytest.mark.parametrize(
    "end",
    [
        "executor.submit(time.sleep, 60).cancel()",
        "assert executor.with_options(timeout=0.1).submit(time.sleep, 60).exception()",
        "executor.submit(time.sleep, 60); executor.stop()",
    ],
)
def test_a_call_that_the_program_ends_is_no_warning(end: str) -> None:
    assert lines_of("", end) == []


def test_a_worker_that_dies_is_a_warning() -> None:
    events: queue.Queue[tuple[int, str]] = queue.Queue()
    with isopool.Executor(1, logger=lambda *event: events.put(event)) as executor:
        assert executor.submit(os.abort).exception()
        while True:
            level, text = events.get(timeout=PATIENCE)
            if "died: SIGABRT" in text:
                break
    assert level == logging.WARNING
