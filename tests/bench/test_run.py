# SPDX-License-Identifier: BSD-3-Clause
import functools
import json
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

import pytest

RUN = pathlib.Path(__file__).resolve().parents[2] / "bench" / "run.py"
sys.path.insert(0, str(RUN.parent))
from goals import GOALS  # noqa: E402

FIELDS = ["bench", "route", "case", "metric", "unit", "value", "spread", "ratio_to", "ratio"]
Row = dict[str, Any]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(RUN), *arguments],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@functools.cache
def rows_of(*arguments: str) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "rows.jsonl"
        finished = run(*arguments, "--quick", "--json", str(file))
        assert finished.returncode == 0, finished.stdout
        rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert rows
    for row in rows:
        assert row["case"] in finished.stdout
    return rows


def values(rows: list[Row], metric: str, route: str = "isopool") -> dict[str, float]:
    return {
        row["case"]: row["value"]
        for row in rows
        if row["metric"] == metric and row["route"] == route
    }


BENCHES = [
    ("roundtrip", "--only", "identity 1 MB"),
    ("session",),
    ("scaling",),
    ("memory",),
    ("idle",),
    ("endurance",),
]


@pytest.mark.parametrize("arguments", BENCHES, ids=lambda arguments: arguments[0])
def test_each_line_of_the_file_is_a_whole_row(arguments: tuple[str, ...]) -> None:
    for row in rows_of(*arguments):
        assert list(row) == FIELDS
        assert row["bench"] == arguments[0]
        assert isinstance(row["value"], int | float)
        assert row["spread"] is None or row["spread"] >= 0
        assert (row["ratio"] is None) == (row["ratio_to"] == "")


def test_roundtrip_copies_nothing_in_shared_memory_and_everything_once_otherwise() -> None:
    copied = values(rows_of(*BENCHES[0]), "bytes_copied")
    assert copied.pop("identity 1 MB copied") == 1_000_000
    assert copied == {
        "identity 1 MB shared": 0,
        "identity 1 MB shared, asleep": 0,
        "identity 1 MB shared, calls 10 ms apart": 0,
    }


def test_roundtrip_takes_its_yardsticks_in_the_same_run() -> None:
    rows = rows_of(*BENCHES[0])
    cases = set(values(rows, "over_in_process"))
    assert set(values(rows, "p50", "in-process")) == cases
    assert set(values(rows, "p99_over_in_process")) == cases
    copied = {"identity 1 MB copied"}
    assert set(values(rows, "bandwidth")) == set(values(rows, "bandwidth", "memcpy")) == copied
    callers = {f"identity 1 MB shared, {callers} callers" for callers in (2, 4, 8)}
    assert set(values(rows, "rate")) == callers


def test_releases_make_no_round_trip() -> None:
    assert values(rows_of("session"), "round_trips") == {"1000 releases": 0}


def test_two_workers_and_two_threads_are_compared_with_one() -> None:
    compared = {
        (row["route"], row["case"]): row["ratio_to"]
        for row in rows_of("scaling")
        if row["metric"] == "rate"
    }
    assert compared["isopool", "2 workers"] == "1 worker"
    assert compared["in-process threads", "2 threads"] == "1 thread"
    assert compared["TorchScript threads", "2 threads"] == "1 thread"


def test_a_written_weight_is_the_writing_workers_own_and_nothing_else_is() -> None:
    rows = rows_of("memory")
    each = values(rows, "private_per_MB")["first write to a weight"]
    assert 0.99 < each < 1.05
    assert "extra worker" in values(rows, "private")


def test_an_idle_pool_of_any_size_sleeps() -> None:
    switches = values(rows_of("idle"), "context_switches")
    assert switches == {"pool of 1": 0, "pool of 8": 0, "pool of 32": 0}


def test_under_kills_and_stops_no_answer_is_wrong_and_only_workers_deaths_fail_calls() -> None:
    rows = rows_of("endurance")
    counts = {row["metric"]: row["value"] for row in rows}
    assert counts["calls answered right"] + counts["calls lost with their worker"] >= 1_000_000
    assert counts["wrong answers"] == counts["other failures"] == 0
    for measured in ("resident memory", "descriptors", "shared memory of the system"):
        late = next(row for row in rows if row["metric"] == f"{measured}, last tenth")
        assert late["ratio_to"] == "the second tenth"


@pytest.mark.parametrize("bench", ["session", "scaling", "idle"])
def test_each_goal_is_answered_by_a_row(bench: str) -> None:
    rows = rows_of(bench)
    goals = [goal for goal in GOALS if goal.bench == bench]
    assert goals
    for goal in goals:
        row = goal.row(rows)
        assert row is not None, goal
        assert not goal.of_ratio or row["ratio"] is not None, goal


def test_what_it_does_not_know_is_refused_in_one_line(tmp_path: pathlib.Path) -> None:
    finished = run("rountrip")
    assert finished.returncode == 2
    assert finished.stdout.splitlines()[-1].startswith("scripts/bench: error: no benchmark rountrip")
    finished = run("memory", "--json", str(tmp_path / "missing" / "rows.json"))
    assert finished.returncode == 2
    assert "there is no such folder" in finished.stdout.splitlines()[-1]
    finished = run("memory", "--quick", "--report")
    assert finished.returncode == 2
    assert "measure in full" in finished.stdout.splitlines()[-1]
