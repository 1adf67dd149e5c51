# SPDX-License-Identifier: BSD-3-Clause
"""Plans of inputs that change: random generations of a folder, with a driver that keeps the plan in memory."""

import json
import os
import pathlib
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from test_worker_jobs import Folder, folder  # noqa: F401
from test_worker_sources import of_input

# isort: split
# test_worker_jobs has put this package on sys.path.
from isopool_batch import calls
from isopool_batch.job import Job
from isopool_batch.sources import source_of

parquet = pytest.importorskip("pyarrow.parquet")
pyarrow = pytest.importorskip("pyarrow")

SEED = int(os.environ.get("ISOPOOL_TEST_SEED", random.randrange(1 << 30)))
GENERATIONS = 12


@dataclass
class Chunk:
    number: int
    ref: dict[str, Any]
    only: list[int] | None = None
    done: bool = False
    rows: dict[str, str] = field(default_factory=dict)  # of the part
    failed: dict[int, str] = field(default_factory=dict)


class Driver:
    """As batch/runner, with a model that returns what the item is, and fails by chance."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.chunks: list[Chunk] = []
        self.before = ""
        self.computed: list[str] = []

    def plan(self, job: str) -> dict[str, Any]:
        planner = calls.planner(job)
        found: dict[str, Any] = {"inputs": {}}
        if self.before:
            known = [
                {"number": each.number, "done": each.done, "ref": each.ref, "failed": list(each.failed)}
                for each in self.chunks
            ]
            for begin in range(0, len(known), 3):
                planner.know(json.dumps(known[begin : begin + 3]))
            found = json.loads(planner.grow(self.before))
            by_number = {each.number: each for each in self.chunks}
            for number, item in found["forget"]:
                del by_number[number].failed[item]
            for number, ref in found["refs"]:
                by_number[number].ref = ref
            self.chunks = [each for each in self.chunks if each.number not in found["drop"]]
        first = max((each.number for each in self.chunks), default=-1) + 1
        refs = json.loads(planner.chunks(3, 0, 1000))
        self.chunks += [Chunk(first + place, ref) for place, ref in enumerate(refs)]
        self.before = json.dumps(json.loads(job)["input"])
        return dict(found["inputs"])

    def retry(self) -> None:
        number = max(each.number for each in self.chunks)
        for each in list(self.chunks):
            if each.failed:
                number += 1
                self.chunks.append(Chunk(number, each.ref, sorted(each.failed)))
                each.failed = {}

    def run(self, job: str, share: float, failures: float) -> None:
        """Does this share of the chunks that are not done."""
        source = source_of(Job.parse(job))
        self.computed = []
        for chunk in self.chunks:
            if chunk.done or self.chance.random() > share:
                continue
            items = source.open(chunk.ref)
            assert items.change() == ""
            for index in range(chunk.ref["rows"]) if chunk.only is None else chunk.only:
                identity, item = items.read(index)
                self.computed.append(str(identity))
                if self.chance.random() < failures:
                    chunk.failed[index] = str(identity)
                else:
                    assert str(identity) not in chunk.rows
                    chunk.rows[str(identity)] = described(item)
            chunk.done = True

    def results(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for chunk in self.chunks:
            assert not found.keys() & chunk.rows.keys(), "two results of one item"
            found |= chunk.rows
        return found

    def failed(self) -> list[str]:
        return [identity for chunk in self.chunks for identity in chunk.failed.values()]


def described(item: Any) -> str:
    return pathlib.Path(item).read_text() if isinstance(item, str) else json.dumps(item)


class Inputs:
    """Files of one kind in a folder, and what is right for them: the value of each ID."""

    def __init__(self, path: pathlib.Path, kind: str, chance: random.Random) -> None:
        self.path = path
        self.kind = kind
        self.chance = chance
        self.files: dict[str, list[int]] = {}
        self.clock = 1_000_000_000
        self.versions = 0
        path.mkdir()

    def write(self, name: str) -> None:
        values = [self.chance.randrange(10, 100) for _ in range(1 if self.kind == "files" else self.chance.randrange(1, 9))]
        if name in self.files and self.chance.random() < 0.5:
            # The size stays.
            values = [*self.files[name]]
            values[-1] = 109 - values[-1]
        self.files[name] = values
        file = self.path / f"{name}.{'txt' if self.kind == 'files' else self.kind}"
        if self.kind == "parquet":
            parquet.write_table(pyarrow.table({"n": values}), file, row_group_size=4)
        elif self.kind == "jsonl":
            file.write_text("".join(f'{{"n": {value}}}\n' for value in values))
        else:
            file.write_text(str(values[0]))
        self.clock += 1
        os.utime(file, (self.clock, self.clock))

    def mutate(self) -> None:
        for name in sorted(self.files):
            kind = self.chance.random()
            if kind < 0.15:
                self.write(name)
            elif kind < 0.25:
                del self.files[name]
                next(self.path.glob(f"{name}.*")).unlink()
        for _ in range(self.chance.randrange(4)):
            self.write(f"f{self.chance.randrange(30):02}")
        if not self.files:
            self.write("f00")

    def job(self, folder: Folder) -> str:
        paths = sorted(str(path) for path in self.path.iterdir())
        if self.kind == "files":
            return of_input(folder, "files", [str(self.path)], input={"root": str(self.path)})
        return of_input(folder, self.kind, paths)

    def right(self) -> dict[str, str]:
        if self.kind == "files":
            return {f"{name}.txt": str(values[0]) for name, values in self.files.items()}
        return {
            f"{name}.{self.kind}:{row}": json.dumps({"n": value})
            for name, values in self.files.items()
            for row, value in enumerate(values)
        }


@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("kind", ["files", "jsonl", "parquet"])
def test_each_generation_has_one_right_answer_for_each_present_item(folder: Folder, kind: str, number: int) -> None:
    print(f"ISOPOOL_TEST_SEED={SEED}")
    chance = random.Random(SEED + number)
    inputs = Inputs(folder / "in", kind, chance)
    driver = Driver(chance)
    removed: dict[str, str] = {}
    for generation in range(GENERATIONS):
        before = {name: list(values) for name, values in inputs.files.items()}
        inputs.mutate()
        job = inputs.job(folder)
        told = driver.plan(job)
        if generation:
            new = inputs.files.keys() - before.keys()
            assert told["new"]["count"] + told["changed"]["count"] >= len(new)
        unchanged = {identity for identity, value in inputs.right().items() if driver.results().get(identity) == value}
        driver.run(job, chance.choice([0.5, 1.0]), chance.choice([0, 0.2]))
        assert not unchanged.intersection(driver.computed), "done twice"
        if chance.random() < 0.3 and all(each.done for each in driver.chunks):
            driver.retry()
            driver.run(job, 1, 0)
        # A part of the rows is there, and those are right; those of files that were removed stay.
        right = inputs.right()
        removed = {identity: value for identity, value in driver.results().items() if identity not in right}
        assert all(right.get(identity, value) == value for identity, value in driver.results().items())
    driver.plan(job)
    driver.run(job, 1, 0)
    driver.retry()
    driver.run(job, 1, 0)
    assert driver.failed() == []
    assert driver.results() == right | removed
    told = driver.plan(job)
    assert [told[what]["count"] for what in ("new", "changed")] == [0, 0]
    driver.run(job, 1, 0)
    assert driver.computed == []


def test_a_file_whose_ids_would_change_is_refused(folder: Folder) -> None:
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    first = folder.jsonl([{"n": 1}], "a/x.jsonl")
    driver = Driver(random.Random(0))
    driver.plan(of_input(folder, "jsonl", [first]))
    with pytest.raises(ValueError, match="IDs of .*a/x.jsonl would begin with a/x.jsonl"):
        driver.plan(of_input(folder, "jsonl", [first, folder.jsonl([{"n": 2}], "b/x.jsonl")]))


def test_a_file_that_another_one_of_its_name_replaces_has_no_result_any_more(folder: Folder) -> None:
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    driver = Driver(random.Random(0))
    job = of_input(folder, "jsonl", [folder.jsonl([{"n": 1}, {"n": 2}], "a/x.jsonl")])
    driver.plan(job)
    driver.run(job, 1, 0)
    job = of_input(folder, "jsonl", [folder.jsonl([{"n": 3}], "b/x.jsonl")])
    driver.plan(job)
    driver.run(job, 1, 0)
    assert driver.results() == {"x.jsonl:0": '{"n": 3}'}


def test_a_touched_text_is_compared_and_a_touched_table_is_done_again(folder: Folder) -> None:
    for name in ("jsonl", "parquet"):
        inputs = Inputs(folder / name, name, random.Random(1))
        inputs.write("f")
        driver = Driver(random.Random(0))
        job = inputs.job(folder)
        driver.plan(job)
        driver.run(job, 1, 0)
        os.utime(folder / name / f"f.{name}", (2_000_000_000, 2_000_000_000))
        assert driver.plan(job)["changed"]["count"] == (name == "parquet")
