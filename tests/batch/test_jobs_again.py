# SPDX-License-Identifier: BSD-3-Clause
"""The same command again, other commands in the same folder, report, retry, and one item alone."""

import json
import pathlib
import signal
from collections.abc import Iterator

import pytest
from batch_command import JobFolder, job_folder, numbers, squares

BAD = {2: "segfault", 5: "raise", 6: "raise", 9: "exit"}
LINE = ["app.py:square", "in.jsonl", "-o", "out", "--chunk-size", "4"]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[JobFolder]:
    with job_folder(tmp_path) as made:
        made.code()
        yield made


def test_again_report_alone_retry(folder: JobFolder) -> None:
    folder.jsonl(numbers(12, BAD))
    folder.run(*LINE, code=3)
    assert folder.rows() == squares(12, BAD)
    parts = stamps(folder)
    computed = folder.trace("begin")

    # The same again.
    ended = folder.run(*LINE, code=3)
    assert ended.last_line.startswith("finished with quarantine: 8 of 12 items have a result, 4 set aside, in ")
    assert stamps(folder) == parts
    assert folder.trace("begin") == computed

    # What was set aside.
    ended = folder.run("report", "out", code=0)
    lines = ended.out.splitlines()
    assert lines[0] == "8 of 12 items have a result, in 3 of 3 parts; 4 were set aside"
    assert "  2 x raised in model: ValueError: this item is wrong" == lines[1]
    assert "  1 x crashed: the worker was killed by SIGSEGV" in lines
    assert "  1 x exited: the worker exited with code 7" in lines
    assert "      alone: isopool batch -o out --only i5 --inline" in lines
    assert lines[-1] == "After a correction: isopool batch retry out"
    report = json.loads(folder.run("report", "out", "--json", code=0).out)
    assert (report["items"], report["done"], report["quarantined"]) == (12, 8, 4)
    assert [(group["count"], [item["id"] for item in group["items"]]) for group in report["groups"]] == [
        (2, ["i5", "i6"]),
        (1, ["i2"]),
        (1, ["i9"]),
    ]

    # One item alone.
    ended = folder.run("-o", "out", "--only", "i4", "--inline", code=0)
    assert json.loads(ended.out) == {"id": "i4", "square": 16}
    folder.run("-o", "out", "--only", "i2", "--inline", code=-signal.SIGSEGV)
    folder.run("-o", "out", "--only", "i9", "--inline", code=7)
    ended = folder.run("-o", "out", "--only", "i5", "--inline", code=1)
    assert "ValueError: this item is wrong" in ended.err
    ended = folder.run("-o", "out", "--only", "i12", "--inline", code=1)
    assert "isopool batch: the inputs have no item i12" in ended.err

    # Without a correction a retry sets them aside again.
    ended = folder.run("retry", "out", code=3)
    assert set(folder.quarantine()) == {"i2", "i5", "i6", "i9"}
    assert {name: stamp for name, stamp in stamps(folder).items() if name in parts} == parts

    # After a correction of some, and of all.
    folder.code("def misbehave(bad): assert bad != 'exit', 'still wrong'")
    folder.run("retry", "out", code=3)
    assert folder.rows() == squares(12, [9])
    assert folder.quarantine()["i9"]["type"] == "AssertionError"
    folder.code("def misbehave(bad): pass")
    before = folder.trace("begin")
    ended = folder.run("retry", "out", code=0)
    assert ended.last_line.startswith("all right: 12 of 12 items have a result, 0 set aside, in ")
    assert folder.trace("begin") == [*before, "i9"]
    assert folder.rows() == squares(12)
    assert folder.quarantine() == {}
    assert not list(folder.out.glob("quarantine*"))
    assert {name: stamp for name, stamp in stamps(folder).items() if name in parts} == parts

    # Then there is nothing left to do, for both commands.
    parts = stamps(folder)
    computed = folder.trace("begin")
    for words in (LINE, ["retry", "out"]):
        ended = folder.run(*words, code=0)
        assert ended.last_line.startswith("all right: 12 of 12 items have a result, 0 set aside, in ")
    assert stamps(folder) == parts
    assert folder.trace("begin") == computed
    assert folder.leftovers() == []


def stamps(folder: JobFolder) -> dict[str, tuple[int, int]]:
    """What differs if a part was written again."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.out.glob("part-*")}


def test_another_job_is_refused(folder: JobFolder) -> None:
    folder.jsonl(numbers(8))
    folder.jsonl(numbers(8, later=1), "other.jsonl")
    folder.run(*LINE, code=0)
    parts = stamps(folder)

    def refused(line: list[str], names: str) -> None:
        ended = folder.run(*line, code=1)
        [text] = ended.err.splitlines()
        assert text.startswith("isopool batch: output: out holds a run that differs in the " + names + ": name another")
        assert "--force" in text
        assert ended.out == ""
        assert stamps(folder) == parts

    refused(["app.py:squares", *LINE[1:], "--batch-size", "4"], "arguments")
    refused([LINE[0], "other.jsonl", *LINE[2:]], "input")
    code = (folder / "app.py").read_text()
    folder.code("def square(row): return {'cube': row['n'] ** 3}")
    refused(LINE, "model")
    refused([LINE[0], "other.jsonl", *LINE[2:], "--column", "n"], "model and the arguments and the input")

    # Other numbers of workers, tries or seconds are no other job.
    (folder / "app.py").write_text(code)
    folder.run(*LINE, "--workers", "1", "--retries", "3", "--timeout", "1m", "--memory", "4GiB", code=0)
    assert stamps(folder) == parts

    # A retry is for a corrected model, not for other inputs.
    folder.jsonl(numbers(9))
    ended = folder.run("retry", "out", code=1)
    assert "more than the model was changed (input)" in ended.err
    assert stamps(folder) == parts

    folder.jsonl(numbers(3))
    folder.code("def square(row): return {'cube': row['n'] ** 3}")
    folder.run(*LINE, "--force", code=0)
    assert folder.rows() == {f"i{n}": {"id": f"i{n}", "cube": n**3} for n in range(3)}


def test_force_removes_what_was_set_aside(folder: JobFolder) -> None:
    folder.jsonl(numbers(8, BAD))
    folder.run(*LINE, code=3)
    folder.code("def misbehave(bad): pass")
    folder.run(*LINE, "--force", code=0)
    assert folder.rows() == squares(8)
    assert not list(folder.out.glob("quarantine*"))


def test_a_model_that_can_not_be_prepared(folder: JobFolder) -> None:
    folder.jsonl(numbers(4))
    called = "    def __call__(self, row): pass"
    folder.code(f"class Broken:\n    def __init__(self): raise KeyError('no weights')\n{called}")
    ended = folder.run("app.py:Broken", *LINE[1:], code=1)
    assert "the model can't be prepared: KeyError: 'no weights'" in ended.err
    folder.code(f"class Broken:\n    def __init__(self): os.kill(os.getpid(), 11)\n{called}")
    ended = folder.run("app.py:Broken", *LINE[1:], code=1)
    assert "the model can't be prepared: the worker was killed by SIGSEGV" in ended.err
    ended = folder.run("app.py:missing", *LINE[1:], code=1)
    assert "app.py has no function or class missing" in ended.err
    # None of them keeps the folder from the right one.
    folder.run(*LINE, code=0)
    assert folder.rows() == squares(4)


def test_input_that_can_not_be_planned(folder: JobFolder) -> None:
    (folder / "in.jsonl").write_text("\n")
    ended = folder.run(*LINE, code=1)
    assert "the inputs can't be planned: the input has no items" in ended.err
    for words in (["retry", "out"], ["-o", "out", "--only", "i1", "--inline"]):
        assert "the journal has no plan, because the run ended before its first item" in folder.run(*words, code=1).err
    ended = folder.run(LINE[0], "missing.jsonl", *LINE[2:], code=1)
    assert "input: there is no file missing.jsonl" in ended.err
    (folder / "in.parquet").write_text("no table")
    ended = folder.run(LINE[0], "in.parquet", *LINE[2:], code=1)
    assert "in.parquet is not a Parquet file that can be read" in ended.err
