# SPDX-License-Identifier: BSD-3-Clause
"""A job that is killed between any two steps that change a file goes on as if nothing had happened.

Each case is a run that a crash point ends by SIGKILL, and the same command again, at once.
"""

import pathlib
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from batch_command import Ended, JobFolder, Row, job_folder, numbers

BATCH = pathlib.Path(__file__).resolve().parents[2] / "batch"
sys.path.insert(0, str(BATCH / "worker"))

from isopool_batch import crash_points  # noqa: E402

# One item is wrong, so that there is a quarantine; its worker lives, so that it has reached all points before.
BAD = {1: "raise"}
ITEMS = 6
# A second command begins while the first one is in Python's imports, which take most of the time.
AT_ONCE = 2

TORN = ("before-spill-truncate", "after-spill-truncate")
# Only beside an old worker, or of a dataset: test_worker_recovery.py.
TAKEN = tuple(name for name in crash_points.NAMES if "spill-copy" in name or "dataset" in name)
FORGET = ("before-forget-commit", "after-forget-commit", "result-removal")
RETRY = ("before-retry-commit", "after-retry-commit")
GROWTH = ("before-growth-commit", "after-growth-commit", "dropped-removal")
FILES = ("file-write", "file-sync", "file-rename", "file-folder-sync")
ALL = crash_points.NAMES + crash_points.DRIVERS_NAMES

# Where a run of all items is killed, and which visit: of items, chunks and files the second one, too.
RUN = [f"{name}:1" for name in ALL if name not in TORN + TAKEN + FORGET + RETRY + GROWTH]
RUN += ["after-spill-append:3", "after-part-rename:2", "after-chunk-commit:2"]
RUN += [f"{name}:2" for name in FILES]
# The same in a run that is forced, and in a retry.
FORCED = [f"{name}:1" for name in FORGET] + ["result-removal:2", "before-plan-commit:1"]
UPDATED = [f"{name}:1" for name in GROWTH] + ["dropped-removal:2", "after-part-rename:1"]
RETRIED = [f"{name}:1" for name in RETRY] + ["after-part-rename:1", "after-chunk-commit:1", "file-write:1"]


@dataclass
class Outcome:
    """What a run that was killed and its continuation have left."""

    killed: Ended
    resumed: Ended
    parts: dict[str, bytes]
    quarantine: dict[str, Row]
    leftovers: list[str]


class Cases:
    """Folders with output folders in four states: none, complete with another model, with other inputs, before a correction."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.plain = self._folder("plain")
        self.forced = self._folder("forced")
        self.retried = self._folder("retried")
        for folder in (self.forced, self.retried):
            folder.run(*self.line("before"), code=3)
        self.updated = self._folder("updated")
        self.updated.run(*self.line("before"), code=3)
        self.updated.jsonl(numbers(ITEMS + 1, BAD)[1:])
        # The results differ from those before, which must not be mixed with them.
        self.forced.code("def square(row): return {'square': -row['n']}")
        self.retried.code("def misbehave(bad): pass")

    def _folder(self, name: str) -> JobFolder:
        folder = JobFolder(self.path / name)
        folder.code()
        folder.jsonl(numbers(ITEMS, BAD))
        return folder

    @staticmethod
    def line(out: str, *more: str) -> list[str]:
        # One worker, so that the visits of a point are always the same.
        words = ["app.py:square", "in.jsonl", "-o", out, "--chunk-size", "3", "--workers", "1", "--retries", "0"]
        return [*words, "--format", "parquet", *more]

    def run(self, point: str, out: str, tear: bool = False) -> Outcome:
        if tear:
            self.plain.run(*self.line(out), environment={crash_points.VARIABLE: "before-part-write:1"})
            with open(self.plain / out / "__job__" / "work" / "000000.spill", "ab") as spill:
                spill.write(b"IPB1 a record that a loss of power has torn")
        return self._outcome(self.plain, out, point, self.line(out), self.line(out))

    def force(self, point: str, out: str) -> Outcome:
        shutil.copytree(self.forced / "before", self.forced / out)
        line = self.line(out, "--force")
        return self._outcome(self.forced, out, point, line, line)

    def update(self, point: str, out: str) -> Outcome:
        shutil.copytree(self.updated / "before", self.updated / out)
        line = self.line(out, "--update")
        return self._outcome(self.updated, out, point, line, line)

    def retry(self, point: str, out: str) -> Outcome:
        shutil.copytree(self.retried / "before", self.retried / out)
        # After the plan of the retry the first command goes on, too.
        again = self.line(out) if point.startswith("after-retry") else ["retry", out]
        return self._outcome(self.retried, out, point, ["retry", out], again)

    @staticmethod
    def _outcome(folder: JobFolder, out: str, point: str, line: list[str], again: list[str]) -> Outcome:
        killed = folder.start(*line, environment={crash_points.VARIABLE: point} if point else {})
        ended = killed.wait()
        resumed = folder.start(*again).wait()
        killed.wait_for_no_process()
        view = JobFolder(folder.path)
        view.out = folder / out
        return Outcome(ended, resumed, view.parts(), view.quarantine(), view.leftovers())


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Outcome]]]:
    path = tmp_path_factory.mktemp("crash_points")
    with job_folder(path), ThreadPoolExecutor(AT_ONCE) as threads:
        cases = Cases(path)
        made: dict[str, Future[Outcome]] = {}

        def add(kind: str, points: list[str], case: Callable[[str, str], Outcome]) -> None:
            # Without a point: nothing is killed.
            for point in ["", *points]:
                made[f"{kind} {point}".strip()] = threads.submit(case, point, f"out-{kind}-{point.replace(':', '-')}")

        add("run", RUN, cases.run)
        add("torn", [f"{name}:1" for name in TORN], lambda point, out: cases.run(point, out, tear=point != ""))
        add("force", FORCED, cases.force)
        add("update", UPDATED, cases.update)
        add("retry", RETRIED, cases.retry)
        yield made
        for future in made.values():
            future.cancel()


KINDS = (("run", RUN), ("force", FORCED), ("update", UPDATED), ("retry", RETRIED))


@pytest.mark.parametrize(
    "case",
    [f"{kind} {point}" for kind, points in KINDS for point in points]
    + [f"torn {name}:1" for name in TORN],
)
def test_a_killed_job_goes_on(case: str, outcomes: dict[str, Future[Outcome]]) -> None:
    kind = case.split()[0]
    undisturbed = outcomes[kind].result()
    found = outcomes[case].result()
    code = 0 if kind in ("retry", "force") else 3
    assert undisturbed.killed.code == code, undisturbed.killed
    assert found.killed.code == -signal.SIGKILL, found.killed
    assert found.resumed.code == code, found.resumed
    assert found.parts == undisturbed.parts
    assert len(found.parts) == (3 if kind == "retry" else 2)
    assert described(found.quarantine) == described(undisturbed.quarantine)
    assert found.leftovers == []


def described(quarantine: dict[str, Row]) -> dict[str, tuple[object, ...]]:
    """Without the command, which has the output folder."""
    names = ("reason", "phase", "type", "message", "traceback", "attempts", "chunk", "item")
    return {identity: tuple(row[name] for name in names) for identity, row in quarantine.items()}


def test_all_crash_points_are_visited() -> None:
    cases = {point.partition(":")[0] for point in RUN + FORCED + UPDATED + RETRIED} | set(TORN)
    assert cases == set(ALL) - set(TAKEN)
    in_cpp = [re.findall(r'crashPoint\("([^"]+)"\)', path.read_text()) for path in BATCH.rglob("*.cc")]
    assert {name for names in in_cpp for name in names} == set(crash_points.DRIVERS_NAMES)
