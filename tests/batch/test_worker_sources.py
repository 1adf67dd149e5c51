# SPDX-License-Identifier: BSD-3-Clause
"""Planning and reading of each kind of input."""

import json
import os
import pathlib
import time
from typing import Any

import pytest
from test_worker_jobs import Folder, failure, folder, opened, refs  # noqa: F401

# isort: split
# test_worker_jobs has put this package on sys.path.
from isopool_batch import calls
from isopool_batch.job import Job
from isopool_batch.sources import source_of

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def of_input(folder: Folder, kind: str, paths: list[str], **more: Any) -> str:
    values: dict[str, Any] = json.loads(folder.job("f = lambda item: item"))
    values["input"] = {"kind": kind, "paths": paths, **more.pop("input", {})}
    return json.dumps(values | more)


def table(folder: Folder, name: str, columns: dict[str, Any], rows: int = 10) -> str:
    parquet.write_table(pyarrow.table(columns), folder / name, row_group_size=rows)
    return str(folder / name)


def everything(job: str, rows: int) -> list[tuple[Any, Any]]:
    """IDs and items of all chunks, read in order."""
    source = source_of(Job.parse(job))
    found = []
    for ref in refs(job, rows):
        items = source.open(ref)
        found += [items.read(index) for index in range(ref["rows"])]
    return found


def count(job: str) -> int:
    items: int = json.loads(calls.planner(job).summary())["items"]
    return items


def test_jsonl_chunks_have_all_lines_except_blank_ones(folder: Folder) -> None:
    path = folder.write("in.jsonl", '\n{"a": 0}\n\n  \n{"a": 1}\n{"a": 2, "id": 7}\n\n{"a": "é"}\n\n{"a": 4}')
    job = of_input(folder, "jsonl", [path, folder.jsonl([5, 6], "more.jsonl")])
    assert count(job) == 7
    assert [ref["rows"] for ref in refs(job, 2)] == [2, 2, 1, 2]
    for rows in (1, 2, 3, 100):
        assert everything(job, rows) == [
            ("in.jsonl:0", {"a": 0}),
            ("in.jsonl:1", {"a": 1}),
            (7, {"a": 2, "id": 7}),
            ("in.jsonl:3", {"a": "é"}),
            ("in.jsonl:4", {"a": 4}),
            ("more.jsonl:0", 5),
            ("more.jsonl:1", 6),
        ]


def test_jsonl_items_are_read_in_any_order(folder: Folder) -> None:
    job = of_input(folder, "jsonl", [folder.write("in.jsonl", "".join(f"\n{i}\n" for i in range(50)))])
    items = source_of(Job.parse(job)).open(refs(job)[0])
    assert [items.read(index)[1] for index in (30, 3, 49, 0, 31, 30)] == [30, 3, 49, 0, 31, 30]


def test_a_damaged_line_fails_alone_in_its_reading(folder: Folder) -> None:
    path = folder.write("in.jsonl", '{"text": 1}\n{"text": \n{"text": 3}\n{"txt": 4}\n')
    chunk = opened(of_input(folder, "jsonl", [path], column="text"))
    found = failure(chunk.run(0, 4))
    assert (found["phase"], found["item"], found["type"]) == ("read", 1, "json.decoder.JSONDecodeError")
    assert "has no column 'text'; it has txt" in failure(chunk.run(3, 1))["message"]
    assert chunk.run(0, 1) == chunk.run(2, 1) == ""
    assert json.loads(chunk.identify(1)) == "in.jsonl:1"


def test_a_hundred_thousand_lines_are_planned_and_paged(folder: Folder) -> None:
    (folder / "in.jsonl").write_text("".join(f'{{"id": {i}, "text": "line {i}"}}\n' for i in range(100_000)))
    job = of_input(folder, "jsonl", [str(folder / "in.jsonl")])
    planner = calls.planner(job)
    begin = time.monotonic()
    assert json.loads(planner.summary())["items"] == 100_000
    pages = [json.loads(planner.chunks(1000, first, 30)) for first in range(0, 150, 30)]
    assert time.monotonic() - begin < 5
    assert [len(page) for page in pages] == [30, 30, 30, 10, 0]
    assert sum(ref["rows"] for page in pages for ref in page) == 100_000
    assert json.loads(planner.chunks(1000, 42, 1)) == [pages[1][12]]
    ref = pages[2][5]
    assert source_of(Job.parse(job)).open(ref).read(17) == (65_017, {"id": 65_017, "text": "line 65017"})


def test_parquet_chunks_lie_within_row_groups(folder: Folder) -> None:
    first = table(folder, "in.parquet", {"id": [None, *range(1, 25)], "text": [f"t{i}" for i in range(25)]})
    job = of_input(folder, "parquet", [first, table(folder, "more.parquet", {"text": ["x", "y"]})])
    assert count(job) == 27
    assert [(ref["row"], ref["rows"]) for ref in refs(job, 7)] == [(0, 7), (7, 3), (10, 7), (17, 3), (20, 5), (0, 2)]
    for rows in (1, 7, 100):
        found = everything(job, rows)
        assert [identity for identity, _ in found] == [
            "in.parquet:0",
            *range(1, 25),
            "more.parquet:0",
            "more.parquet:1",
        ]
        assert [row["text"] for _, row in found] == [f"t{i}" for i in range(25)] + ["x", "y"]


def test_a_column_of_parquet_is_read_without_the_others(folder: Folder) -> None:
    path = table(folder, "in.parquet", {"id": ["a", "b"], "other": [1, 2], "text": ["x", "y"]})
    assert everything(of_input(folder, "parquet", [path], column="text"), 10) == [("a", "x"), ("b", "y")]
    assert [row["other"] for _, row in everything(of_input(folder, "parquet", [path]), 10)] == [1, 2]


def test_parquet_rows_are_read_in_any_order_and_anew_each_time(folder: Folder) -> None:
    job = of_input(folder, "parquet", [table(folder, "in.parquet", {"n": list(range(2000))}, rows=2000)])
    items = source_of(Job.parse(job)).open(refs(job, 1500)[0])
    for index in (1499, 3, 700, 3, 1400, 699, 0, 3):
        identity, row = items.read(index)
        assert (identity, row.pop("n")) == (f"in.parquet:{index}", index)


def test_files_of_folders_and_patterns_are_sorted_without_hidden_ones(folder: Folder) -> None:
    for name in ("b/2.txt", "b/1.txt", "b/.hidden", "b/.git/x", "a/z.jpg", "a/y.jpg", "a/n.txt", "single"):
        folder.write(name, name)
    os.symlink(folder / "b", folder / "b" / "loop")
    paths = [str(folder / "single"), str(folder / "b"), str(folder / "a" / "*.jpg"), str(folder / "b" / "1.txt")]
    job = of_input(folder, "files", paths, input={"root": str(folder.path)})
    assert count(job) == 5
    found = everything(job, 2)
    assert [identity for identity, _ in found] == ["single", "b/1.txt", "b/2.txt", "a/y.jpg", "a/z.jpg"]
    assert all(path == str(folder / identity) for identity, path in found)
    assert json.loads(opened(job).identify(1)) == "b/1.txt"


def test_a_touched_file_changes_the_fingerprint(folder: Folder) -> None:
    folder.write("in/a", "1")
    job = of_input(folder, "files", [str(folder / "in")], input={"root": str(folder / "in")})
    before = json.loads(calls.planner(job).summary())["fingerprint"]
    os.utime(folder / "in" / "a", ns=(1, 1))
    assert json.loads(calls.planner(job).summary())["fingerprint"]["input"] != before["input"]


@pytest.mark.parametrize("data", ["data = list('abc')", "def data(): return list('abc')", "class data(list): ..."])
def test_a_dataset_is_an_object_or_what_a_callable_returns(folder: Folder, data: str) -> None:
    job = json.loads(folder.job(data))
    job["input"] = {"kind": "dataset", "path": job["model"]["path"], "name": "data"}
    if data.startswith("class"):
        with pytest.raises(ValueError, match="no items"):
            calls.planner(json.dumps(job)).summary()
        return
    assert count(json.dumps(job)) == 3
    assert everything(json.dumps(job), 2) == [("data:0", "a"), ("data:1", "b"), ("data:2", "c")]


def test_a_dataset_reads_items_when_they_run(folder: Folder) -> None:
    job = json.loads(
        folder.job(
            """
            class data:
                def __len__(self): return 3
                def __getitem__(self, i):
                    if i == 1: raise LookupError("item 1")
                    return {"id": f"row {i}", "x": i}
            f = len
            """
        )
    )
    job["input"] = {"kind": "dataset", "path": job["model"]["path"], "name": "data"}
    chunk = opened(json.dumps(job))
    assert chunk.run(0, 1) == chunk.run(2, 1) == ""
    found = failure(chunk.run(1, 1))
    assert (found["phase"], found["item"], found["message"]) == ("read", 1, "item 1")
    assert [json.loads(chunk.identify(item)) for item in range(3)] == ["row 0", "data:1", "row 2"]


def test_a_pickled_dataset_is_read(folder: Folder) -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    (folder / "in.pkl").write_bytes(cloudpickle.dumps([10, 20]))
    job = json.loads(folder.job(""))
    job["input"] = {"kind": "dataset", "pickle": str(folder / "in.pkl")}
    assert everything(json.dumps(job), 5) == [("dataset:0", 10), ("dataset:1", 20)]


def test_an_object_that_is_no_dataset_is_refused(folder: Folder) -> None:
    job = json.loads(folder.job("data = iter(())"))
    job["input"] = {"kind": "dataset", "path": job["model"]["path"], "name": "data"}
    with pytest.raises(ValueError, match="__len__ and __getitem__"):
        calls.planner(json.dumps(job)).summary()


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "files"])
def test_absent_and_empty_inputs_are_refused_in_one_line(folder: Folder, kind: str) -> None:
    (folder / "empty").mkdir()
    (folder / "empty.jsonl").write_text("\n \n")
    (folder / "gzip.jsonl").write_bytes(b"\x1f\x8b\x08\x00")
    if kind == "parquet":
        table(folder, "none.parquet", {"a": pyarrow.array([], pyarrow.int64())})
    paths = {
        "jsonl": ["absent", "empty", "empty.jsonl", "gzip.jsonl"],
        "parquet": ["absent", "empty", "empty.jsonl", "none.parquet"],
        "files": ["absent", "empty", "*.png"],
    }[kind]
    for path in paths:
        job = of_input(folder, kind, [str(folder / path)], input={"root": str(folder.path)})
        with pytest.raises(ValueError) as raised:
            calls.planner(job).summary()
        assert path in str(raised.value) or str(folder.path) in str(raised.value)
        assert "\n" not in str(raised.value)


def test_a_missing_column_of_parquet_is_refused(folder: Folder) -> None:
    job = of_input(folder, "parquet", [table(folder, "in.parquet", {"a": [1]})], column="b")
    with pytest.raises(ValueError, match="has no column 'b'; it has a"):
        calls.planner(job).summary()


def test_files_of_one_name_have_different_ids(folder: Folder) -> None:
    job = of_input(folder, "jsonl", [folder.jsonl([1], "x/in.jsonl"), folder.jsonl([2], "y/in.jsonl")])
    assert everything(job, 1) == [("x/in.jsonl:0", 1), ("y/in.jsonl:0", 2)]


def test_a_file_that_lost_lines_after_planning_fails_in_reading(folder: Folder) -> None:
    job = of_input(folder, "jsonl", [folder.jsonl([1, 2])])
    ref = refs(job)[0]
    pathlib.Path(folder / "in.jsonl").write_text("1\n")
    chunk = opened(job, ref)
    assert "has changed" in failure(chunk.run(0, 2))["message"]


def test_a_parquet_file_that_lost_its_rows_fails_in_reading(folder: Folder) -> None:
    job = of_input(folder, "parquet", [table(folder, "in.parquet", {"a": list(range(9))})])
    ref = refs(job)[0]
    table(folder, "in.parquet", {"a": [1]})
    found = failure(opened(job, ref).run(0, 1))
    assert (found["phase"], found["item"]) == ("read", 0)
    assert "has changed" in found["message"]


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "files"])
@pytest.mark.parametrize("path", ["fifo", "/dev/zero", "/dev/full"])
def test_an_input_that_is_no_regular_file_is_refused(folder: Folder, kind: str, path: str) -> None:
    if path == "fifo":
        path = str(folder / "fifo")
        os.mkfifo(path)
    job = of_input(folder, kind, [path], input={"root": str(folder.path)})
    with pytest.raises(ValueError, match="not a regular file"):
        source_of(Job.parse(job)).count()
    with pytest.raises(ValueError, match="not a regular file"):
        source_of(Job.parse(job)).fingerprint()
