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


def test_a_parquet_file_that_lost_its_rows_is_noticed(folder: Folder) -> None:
    job = of_input(folder, "parquet", [table(folder, "in.parquet", {"a": list(range(9))})])
    ref = refs(job)[0]
    table(folder, "in.parquet", {"a": [1]})
    assert "has changed" in opened(job, ref).run(0, 1)
    # During a call.
    items = source_of(Job.parse(job)).open(ref)
    with pytest.raises(ValueError, match="has changed"):
        items.read(5)


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


def changes(job: str) -> str:
    """What a chunk says of its input before its first item."""
    found = opened(job).run(0, 1)
    return "" if found == "" else str(json.loads(found)["message"])


def test_lines_that_were_inserted_changed_or_cut_are_noticed(folder: Folder) -> None:
    job = of_input(folder, "jsonl", [folder.jsonl(list(range(20)))])
    planned = refs(job, 5)
    path = folder / "in.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    for wrong in (["99\n", *lines], [*lines[:5], "0\n", *lines[6:]], lines[:7], [*lines[:12], "\n", *lines[12:]]):
        path.write_text("".join(wrong))
        found = [opened(job, ref).run(0, 1) for ref in planned]
        assert any("has changed since" in text for text in found), wrong
        # Chunks whose bytes are as planned can be computed.
        assert [text == "" for text in found] == [
            "".join(wrong).encode()[ref["offset"] : ref["offset"] + ref["bytes"]]
            == "".join(lines).encode()[ref["offset"] : ref["offset"] + ref["bytes"]]
            for ref in planned
        ]
    path.write_text("".join(lines))
    chunk = opened(job, planned[1])
    assert chunk.run(0, 5) == ""
    path.write_text("".join(["9\n", *lines]))
    assert "in.jsonl has changed" in json.loads(chunk.finish())["changed"]
    path.unlink()
    assert "in.jsonl has changed" in json.loads(chunk.finish())["changed"]
    assert not list((folder / "out").glob("part-*"))


def test_tables_and_files_that_changed_are_noticed(folder: Folder) -> None:
    job = of_input(folder, "parquet", [table(folder, "a.parquet", {"x": [1, 2, 3]})])
    ref = refs(job)[0]
    assert opened(job, ref).run(0, 3) == ""
    table(folder, "a.parquet", {"x": [1, 2, 4]})
    assert "a.parquet has changed" in opened(job, ref).run(0, 1)
    for name in ("one.txt", "two.txt"):
        folder.write(f"files/{name}", name)
    root = str(folder / "files")
    job = of_input(folder, "files", [root], input={"root": root})
    ref = refs(job)[0]
    chunk = opened(job, ref)
    assert chunk.run(0, 2) == ""
    folder.write("files/two.txt", "other")
    assert "two.txt has changed" in json.loads(chunk.finish())["changed"]
    (folder / "files" / "two.txt").unlink()
    assert "two.txt has changed" in opened(job, ref).run(0, 1)


def dataset(folder: Folder, text: str) -> str:
    path = folder.write("data_of_it.py", text)
    return of_input(folder, "dataset", [], input={"path": path, "name": "data"})


ORDERS = """
    import os, pathlib
    WORDS = [{"word": word} for word in ("a", "b", "c", "d", "e", "f")]
    def data():
        turned = pathlib.Path(__file__).with_name("turned").exists()
        return WORDS[::-1] if turned else WORDS
    """


def anew() -> None:
    """As in another worker: the dataset is made again."""
    calls._jobs.clear()


@pytest.mark.parametrize("computed", [1, 6])
def test_a_dataset_with_another_order_in_another_process_is_noticed(folder: Folder, computed: int) -> None:
    job = dataset(folder, ORDERS)
    chunk = opened(job)
    assert chunk.run(0, computed) == ""
    assert json.loads(chunk.finish())["rows"] == computed
    anew()
    assert changes(job) == ""
    (folder / "turned").write_text("")
    anew()
    assert "is not the one that another worker or run has read" in changes(job)
    (folder / "turned").unlink()
    anew()
    assert changes(job) == ""


def test_a_dataset_with_random_parts_or_of_another_file_is_not_compared(folder: Folder) -> None:
    text = "import random\ndef data(): return Data()\nclass Data:\n"
    text += "    def __len__(self): return 3\n    def __getitem__(self, index): return (index, random.random())\n"
    job = dataset(folder, text)
    for _ in range(2):
        anew()
        chunk = opened(job)
        assert chunk.run(0, 3) == ""
        chunk.finish()
    job = dataset(folder, "data = [1, 2, 3]")
    assert changes(job) == ""


def test_links_are_followed_and_loops_and_dangling_ones_refused(folder: Folder) -> None:
    folder.write("elsewhere/c/inner.txt", "")
    folder.write("top/a.txt", "")
    (folder / "top" / "linked").symlink_to(folder / "elsewhere")
    (folder / "top" / "b.txt").symlink_to(folder / "top" / "a.txt")
    root = str(folder / "top")
    job = of_input(folder, "files", [root], input={"root": root})
    assert [identity for identity, _ in everything(job, 10)] == ["a.txt", "b.txt", "linked/c/inner.txt"]
    (folder / "elsewhere" / "c" / "back").symlink_to(folder / "top")
    with pytest.raises(ValueError, match="linked/c/back is a link to a folder that it lies in"):
        count(job)
    (folder / "elsewhere" / "c" / "back").unlink()
    (folder / "top" / "gone").symlink_to(folder / "nothing")
    with pytest.raises(ValueError, match="gone is a link to a file that does not exist"):
        count(job)


def test_two_columns_of_one_name_are_refused(folder: Folder) -> None:
    twice = pyarrow.table([pyarrow.array([1]), pyarrow.array([2])], names=["x", "x"])
    parquet.write_table(twice, folder / "twice.parquet")
    with pytest.raises(ValueError, match="twice.parquet has two columns 'x'"):
        count(of_input(folder, "parquet", [str(folder / "twice.parquet")]))


def test_a_row_that_python_can_not_have_fails_alone(folder: Folder) -> None:
    days = pyarrow.array([0, 4_000_000, 2], pyarrow.int32()).cast(pyarrow.date32())  # the second is in the year 12921
    parquet.write_table(pyarrow.table({"day": days}), folder / "days.parquet")
    chunk = opened(of_input(folder, "parquet", [str(folder / "days.parquet")]))
    assert chunk.run(0, 1) == "" and chunk.run(2, 1) == ""
    found = failure(chunk.run(1, 1))
    assert (found["phase"], found["item"]) == ("read", 1)
