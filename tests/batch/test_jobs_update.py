# SPDX-License-Identifier: BSD-3-Clause
"""Inputs that grow from night to night: --update does what is new or has changed, and nothing twice."""

import os
import pathlib
from collections.abc import Iterator

import pytest
from batch_command import JobFolder, job_folder, numbers, squares

LINE = ["app.py:length", "in", "-o", "out", "--chunk-size", "2", "--workers", "1", "--retries", "0"]
CODE = """
def length(path):
    text = open(path).read()
    with open("calls", "a") as calls:
        calls.write(os.path.basename(path) + "\\n")
    if text == "bad":
        raise ValueError(text)
    return {"length": len(text)}
"""


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[JobFolder]:
    with job_folder(tmp_path) as made:
        made.code(CODE)
        (made / "in").mkdir()
        yield made


def write(folder: JobFolder, **texts: str) -> None:
    for name, text in texts.items():
        (folder / "in" / f"{name}.txt").write_text(text)


def calls(folder: JobFolder) -> list[str]:
    """Of files since the last look, without the endings."""
    path = folder / "calls"
    names = path.read_text().split() if path.exists() else []
    path.unlink(missing_ok=True)
    return sorted(name.removesuffix(".txt") for name in names)


def lengths(**of: int) -> dict[str, dict[str, object]]:
    return {f"{name}.txt": {"id": f"{name}.txt", "length": length} for name, length in of.items()}


def test_new_and_changed_files_are_done_and_removed_ones_reported(folder: JobFolder) -> None:
    write(folder, a="1", b="22", c="333", d="4444", e="bad")
    folder.run(*LINE, "--update", code=3)
    assert calls(folder) == ["a", "b", "c", "d", "e"]
    parts = folder.parts()

    write(folder, f="666666", e="55555")
    assert "do what is new or has changed with --update" in folder.run(*LINE, code=1).err
    ended = folder.run(*LINE, "--update", code=0)
    assert "1 input is new (f.txt), 1 has changed (e.txt)" in ended.out
    # The file that had failed is done without the others of its chunk.
    assert calls(folder) == ["e", "f"]
    assert folder.rows() == lengths(a=1, b=2, c=3, d=4, e=5, f=6)
    assert parts.items() <= folder.parts().items() and folder.quarantine() == {}
    assert "no input is new or has changed" in folder.run(*LINE, "--update", code=0).out
    folder.run(*LINE, code=0)
    assert calls(folder) == []

    write(folder, a="a new text")
    (folder / "in" / "d.txt").unlink()
    ended = folder.run(*LINE, "--update", code=0)
    assert "1 input has changed (a.txt), 1 was removed, and its results stay (d.txt)" in ended.out
    assert calls(folder) == ["a", "b"]
    assert folder.rows() == lengths(a=10, b=2, c=3, d=4, e=5, f=6)
    assert folder.leftovers() == []

    write(folder, d="4444")
    os.utime(folder / "in" / "d.txt", (1, 1))
    folder.run(*LINE, "--update", code=0)
    assert calls(folder) == ["c", "d"]
    assert folder.rows() == lengths(a=10, b=2, c=3, d=4, e=5, f=6)


def test_an_update_is_for_other_inputs_only(folder: JobFolder) -> None:
    write(folder, a="1", b="22")
    folder.run(*LINE, code=0)
    parts = folder.parts()
    write(folder, c="333")
    for words, text in (
        (["--update", "--force"], "exclude each other"),
        (["--update", "--shard", "0/2"], "not for shards"),
        (["--update", "--format", "jsonl"], "differs in the arguments and the input, and --update"),
    ):
        assert text in folder.run(*LINE, *words, code=1).err
    (folder / "more").mkdir()
    assert "IDs would be relative to" in folder.run(*LINE[:2], "more", *LINE[2:], "--update", code=1).err
    folder.code(CODE + "# changed")
    assert "differs in the model and the input" in folder.run(*LINE, "--update", code=1).err
    folder.code("data = [{'id': f'i{n}', 'n': n} for n in range(4)]")
    line = ["app.py:square", "app.py:data", "-o", "data"]
    folder.run(*line, code=0)
    assert "a dataset, whose items can't be compared" in folder.run(*line, "--update", code=1).err
    assert folder.parts() == parts


def test_tables_are_done_again_as_a_whole(folder: JobFolder) -> None:
    folder.code()
    folder.jsonl(numbers(4), "in/a.jsonl")
    folder.jsonl(numbers(8)[4:], "in/b.jsonl")
    line = ["app.py:square", "in", "-o", "out", "--chunk-size", "3"]
    folder.run(*line, code=0)
    first = folder.parts()
    folder.jsonl(numbers(10)[4:], "in/b.jsonl")
    folder.jsonl(numbers(12)[10:], "in/0.jsonl")
    ended = folder.run(*line, "--update", code=0)
    assert "1 input is new (0.jsonl), 1 has changed (b.jsonl)" in ended.out
    assert folder.rows() == squares(12)
    assert {name for name, text in first.items() if folder.parts().get(name) == text} == {
        "part-000000.jsonl",
        "part-000001.jsonl",
    }
    one = folder.run("-o", "out", "--only", "i1", "--inline", code=0)
    assert one.out == '{"id":"i1","square":1}\n'


def test_an_interrupted_run_goes_on_with_other_inputs(folder: JobFolder) -> None:
    write(folder, **{f"f{n}": "x" * n for n in range(1, 8)})
    line = [*LINE, "--format", "jsonl"]
    folder.run(*line, environment={"ISOPOOL_BATCH_CRASH_AT": "after-chunk-commit:2"})
    assert 4 <= len(calls(folder)) < 7
    write(folder, f7="changed", f8="x" * 8)
    (folder / "in" / "f6.txt").unlink()
    folder.run(*line, "--update", code=0)
    assert folder.rows() == lengths(**{f"f{n}": n for n in (1, 2, 3, 4, 5, 7, 8)})
