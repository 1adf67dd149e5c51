# SPDX-License-Identifier: BSD-3-Clause
"""Chunks whose worker died: what it recorded is kept, and the part file has the same bytes as without a death."""

import errno
import fcntl
import json
import os
import pathlib
import signal
import stat
import subprocess
import sys
from typing import Any

import pytest
from test_worker_jobs import WORKER, Folder, folder, opened, part_of, refs  # noqa: F401

# isort: split
# test_worker_jobs has put this package on sys.path.
from isopool_batch import crash_points, durable, spill

FORMATS = ["parquet", "jsonl"]
ITEMS = 6
CODE = """
    import os
    def f(row): return {"n": row["n"], "square": row["n"] ** 2, "list": [row["n"]] * 3}
    def after(result):
        with open(os.path.join(os.path.dirname(__file__), "computed"), "a") as file: file.write(f"{result['n']} ")
        return result
    """

# A worker: computes the chunk item by item, and finishes it.
PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from isopool_batch import calls
chunk = calls.open_chunk(sys.argv[2], sys.argv[3])
done = {item for first, count in json.loads(chunk.finished()) for item in range(first, first + count)}
for item in range(int(sys.argv[4])):
    if item not in done:
        assert chunk.run(item, 1) == ""
chunk.finish()
"""


class Run:
    """One chunk, which several workers work at."""

    def __init__(self, folder: Folder, format: str) -> None:
        self.folder = folder
        rows = [{"id": i, "n": i} for i in range(ITEMS)]
        self.job = folder.job(CODE, rows, postprocess="after", format=format)
        self.part = folder / "out" / f"part-000000.{format}"
        self.spill = folder / "out" / "__job__" / "work" / "000000.spill"
        self.expected = b""
        part_of(self.job)
        self.expected = self.part.read_bytes()
        self.part.unlink()
        (folder / "computed").unlink()

    def in_process(self) -> list[int]:
        """Completes the chunk in this process; the items that it computed."""
        computed = self.folder / "computed"
        computed.write_text("")
        chunk = opened(self.job)
        assert chunk.run(0, ITEMS) == ""
        chunk.finish()
        assert not self.spill.exists()
        assert self.expected in (b"", self.part.read_bytes())
        return [int(word) for word in computed.read_text().split()]

    def worker(self, crash_at: str, driver: int = 0) -> int:
        """Runs a worker up to a crash point; its exit status."""
        job = json.dumps(json.loads(self.job) | {"driver": driver})
        chunk = {"number": 0, "part": self.part.name, "skip": [], "ref": refs(self.job)[0]}
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, str(WORKER), job, json.dumps(chunk), str(ITEMS)],
            env=os.environ | {crash_points.VARIABLE: crash_at},
            check=False,
            timeout=60,
        ).returncode


def damage_tail(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


# Those of a schema are in test_jobs_crash_points.py.
@pytest.mark.parametrize("name", [name for name in crash_points.NAMES if "schema" not in name and "dataset" not in name])
def test_a_crash_at_each_point_leaves_a_chunk_that_ends_in_the_same_bytes(folder: Folder, name: str) -> None:
    run = Run(folder, "parquet" if "part" in name else "jsonl")
    if name.endswith("spill-truncate"):
        assert run.worker("spill-append:4") == -signal.SIGKILL
        damage_tail(run.spill)
    old = None
    if "spill-copy" in name:
        # A worker of an earlier run has the chunk open, with two results.
        old = opened(run.job)
        assert old.run(0, 2) == ""
    driver = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    try:
        assert run.worker(f"{name}:1", driver.pid) == -signal.SIGKILL
        assert driver.wait(10) == -signal.SIGKILL
    finally:
        driver.kill()
        driver.communicate()
    renamed = {
        "after-part-rename",
        "before-folder-sync",
        "after-folder-sync",
        "before-spill-remove",
        "after-spill-remove",
    }
    assert run.part.exists() == (name in renamed)
    computed = run.in_process()
    assert old is None or computed == [2, 3, 4, 5]
    assert sorted(path.name for path in (folder / "out").glob("[!._]*")) == [run.part.name]
    assert not list((folder / "out").glob(".*.aside"))
    assert os.listdir(run.spill.parent) == []


@pytest.mark.parametrize("name", [name for name in crash_points.NAMES if "dataset" in name])
def test_a_crash_while_the_items_of_a_dataset_are_noted_leaves_a_chunk_that_ends(folder: Folder, name: str) -> None:
    path = folder.write("data_of_it.py", "data = [1, 2, 3]")
    values = json.loads(folder.job("def f(n): return n + 1"))
    values["input"] = {"kind": "dataset", "path": path, "name": "data"}
    job = json.dumps(values)
    chunk = {"number": 0, "part": "part-000000.jsonl", "skip": [], "ref": refs(job)[0]}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(WORKER), job, json.dumps(chunk), "3"],
        env=os.environ | {crash_points.VARIABLE: f"{name}:1"},
        check=False,
        timeout=60,
    )
    assert ended.returncode == -signal.SIGKILL
    assert part_of(job)["rows"] == 3
    assert [row["result"] for row in folder.rows()] == [2, 3, 4]
    noted = json.loads((folder / "out" / "__job__" / "dataset.json").read_text())
    assert "0" in noted["items"] or "1" in noted["items"]


@pytest.mark.parametrize("format", FORMATS)
def test_a_death_costs_only_the_call_that_ran(folder: Folder, format: str) -> None:
    run = Run(folder, format)
    assert run.worker("before-spill-append:4") == -signal.SIGKILL
    assert opened(run.job).finished() == "[[0, 3]]"
    assert run.in_process() == [3, 4, 5]


@pytest.mark.parametrize("cut", [1, 17, 40])
def test_records_behind_a_damaged_one_are_computed_again(folder: Folder, cut: int) -> None:
    run = Run(folder, "jsonl")
    assert run.worker("before-spill-append:6") == -signal.SIGKILL
    content = bytearray(run.spill.read_bytes())
    at = content.index(b"IPB1", content.index(b"IPB1", 1) + 1) + cut - 1  # within the record of item 1
    content[at] ^= 255
    run.spill.write_bytes(content)
    assert opened(run.job).finished() == "[[0, 1]]"
    assert run.in_process() == [1, 2, 3, 4, 5]


def test_every_length_of_the_spill_is_recovered(folder: Folder) -> None:
    """As after a loss of power, which may keep any part of the file's end."""
    path = str(folder / "spill")
    whole = spill.Spill(path, "job")
    ends = [os.path.getsize(path)]
    for item in range(3):
        whole.append(spill.packed([item], [{"id": item}]))
        ends.append(os.path.getsize(path))
    content = pathlib.Path(path).read_bytes()
    for length in range(len(content) + 1):
        for tail in (b"", b"\0" * 100):
            pathlib.Path(path).write_bytes(content[:length] + tail)
            recovered = spill.Spill(path, "job")
            assert recovered.recovered == set(range(sum(end <= length for end in ends[1:])))
            recovered.append(spill.packed([9], [{"id": 9}]))
            assert set(spill.Spill(path, "job").rows()) == recovered.recovered | {9}


def test_the_spill_of_another_job_is_discarded(folder: Folder) -> None:
    run = Run(folder, "jsonl")
    assert run.worker("before-spill-append:4") == -signal.SIGKILL
    other = json.dumps(json.loads(run.job) | {"column": "n"})
    assert opened(other, refs(run.job)[0]).finished() == "[]"


def test_the_spill_of_another_chunk_is_discarded(folder: Folder) -> None:
    run = Run(folder, "jsonl")
    assert run.worker("before-spill-append:4") == -signal.SIGKILL
    assert opened(run.job, refs(run.job, 3)[0]).finished() == "[]"


def test_recovered_items_that_are_quarantined_since_are_left_out(folder: Folder) -> None:
    run = Run(folder, "jsonl")
    assert run.worker("before-spill-append:4") == -signal.SIGKILL
    chunk = opened(run.job, skip=[1])
    assert chunk.finished() == "[[0, 1], [2, 1]]"
    assert json.loads(chunk.finish())["rows"] == 2
    assert [row["id"] for row in folder.rows()] == [0, 2]


def test_the_first_record_of_an_item_counts(folder: Folder) -> None:
    written = spill.Spill(str(folder / "spill"), "job")
    written.append(spill.packed([1], [{"id": 1, "x": 1}]))
    written.append(spill.packed([1, 2], [{"id": 1, "x": 2}, {"id": 2, "x": 2}]))
    assert written.rows() == {1: {"id": 1, "x": 1}, 2: {"id": 2, "x": 2}}


def test_a_full_disk_passes_through_and_damages_nothing(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    job = folder.job("f = abs", [1, 2, 3])
    chunk = opened(job)
    assert chunk.run(0, 1) == ""
    write = os.write
    written: list[int] = []

    def full(descriptor: int, data: Any) -> int:
        if written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(write(descriptor, data[:10]))
        return written[0]

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            chunk.run(1, 1)
    assert chunk.finished() == "[[0, 1]]"
    assert chunk.run(1, 2) == ""
    assert opened(job).finished() == "[[0, 3]]"


def test_short_writes_are_continued(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    job = folder.job("f = abs", [1, 2])
    assert opened(job).run(0, 2) == ""
    assert opened(job).finished() == "[[0, 2]]"


def test_a_failed_part_leaves_no_file_beside_it(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    job = folder.job("f = abs", [1])
    chunk = opened(job)
    assert chunk.run(0, 1) == ""

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            chunk.finish()
    assert [path.name for path in (folder / "out").iterdir()] == ["__job__"]
    assert json.loads(chunk.finish())["rows"] == 1


def test_a_writer_that_was_stopped_half_way_can_not_write_into_the_part_of_another(folder: Folder) -> None:
    part = str(folder / "part-000000.jsonl")

    def stopped(file: Any) -> None:
        file.write(b"half ")
        file.flush()
        # Meanwhile another one, which has no lock to wait for, writes the part.
        assert durable.publish(part, lambda other: other.write(b"whole"), "part") == 5
        file.write(b"of it")

    with pytest.raises(FileExistsError):
        durable.publish(part, stopped, "part")
    assert pathlib.Path(part).read_bytes() == b"whole"
    assert os.listdir(folder.path) == ["part-000000.jsonl"]


def test_a_part_with_the_same_contents_counts_as_written(folder: Folder) -> None:
    part = str(folder / "part-000000.jsonl")
    for _ in range(2):
        assert durable.publish(part, lambda file: file.write(b"whole"), "part") == 5
    assert os.listdir(folder.path) == ["part-000000.jsonl"]


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP])
def test_a_part_is_published_where_there_are_no_links(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def link(_: str, path: str) -> None:
        raise OSError(code, os.strerror(code), path)

    monkeypatch.setattr(os, "link", link)
    part = str(folder / "part-000000.jsonl")
    assert durable.publish(part, lambda file: file.write(b"whole"), "part") == 5
    with pytest.raises(FileExistsError):
        durable.publish(part, lambda file: file.write(b"other"), "part")
    assert os.listdir(folder.path) == ["part-000000.jsonl"]


@pytest.mark.parametrize("format", FORMATS)
def test_of_a_model_that_answers_otherwise_each_time_the_part_that_is_there_stays(folder: Folder, format: str) -> None:
    code = "import itertools\ncalls = itertools.count()\ndef f(row): return next(calls)"
    job = folder.job(code, [{"id": "a"}, {"id": "b"}], format=format)
    part = folder / "out" / f"part-000000.{format}"

    def complete() -> bytes:
        assert part_of(job) == {"rows": 2, "bytes": part.stat().st_size}
        return part.read_bytes()

    assert complete() == complete()
    other = folder.job(code, [{"id": "a"}, {"id": "c"}], format=format)
    chunk = opened(other)
    assert chunk.run(0, 2) == ""
    with pytest.raises(FileExistsError):
        chunk.finish()


def test_a_finished_chunk_can_not_write_any_more(folder: Folder) -> None:
    chunk = opened(folder.job("f = abs", [1, 2]))
    assert chunk.run(0, 1) == ""
    chunk.finish()
    assert "closed files" in json.loads(chunk.run(1, 1))["message"]
    assert json.loads(folder.part())["result"] == 1


def test_a_wrong_crash_point_is_refused() -> None:
    found = subprocess.run(
        [sys.executable, "-c", "import isopool_batch.crash_points"],
        env=os.environ | {crash_points.VARIABLE: "nowhere:1", "PYTHONPATH": str(WORKER)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 1
    assert "ISOPOOL_BATCH_CRASH_AT is 'nowhere:1': NAME:N is needed" in found.stderr


def test_a_chunk_that_an_old_worker_still_runs_is_taken_from_it(folder: Folder) -> None:
    run = Run(folder, "jsonl")
    old = opened(run.job)
    assert old.run(0, 2) == ""
    new = opened(run.job)
    assert new.finished() == "[[0, 2]]"
    # The old worker ends its call: what it records is in nobody's way.
    assert old.run(2, 2) == ""
    assert new.run(2, 4) == ""
    with pytest.raises(OSError, match="another run goes on with the chunk"):
        old.finish()
    assert json.loads(new.finish())["rows"] == ITEMS
    assert run.part.read_bytes() == run.expected
    assert os.listdir(run.spill.parent) == []


def test_a_chunk_that_a_new_worker_has_finished_stays_as_it_is(folder: Folder) -> None:
    run = Run(folder, "jsonl")
    old = opened(run.job)
    assert old.run(0, 2) == ""
    new = opened(run.job)
    assert new.run(2, 4) == ""
    new.finish()
    assert old.run(2, 4) == ""
    with pytest.raises(OSError, match="another run goes on with the chunk"):
        old.finish()
    assert run.part.read_bytes() == run.expected
    assert os.listdir(run.spill.parent) == []


def test_without_locks_a_chunk_is_recovered_too(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_locks(*_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    run = Run(folder, "jsonl")
    assert run.worker("before-spill-append:4") == -signal.SIGKILL
    monkeypatch.setattr(fcntl, "flock", without_locks)
    assert run.in_process() == [3, 4, 5]


def test_the_mask_of_user_code_is_none_of_the_parts(folder: Folder) -> None:
    before = os.umask(0o022)
    os.umask(before)
    try:
        part_of(folder.job("import os\ndef f(row): return os.umask(0o777)", [1]))
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / "out" / "part-000000.jsonl").stat().st_mode) == 0o666 & ~before
