# SPDX-License-Identifier: BSD-3-Clause
"""`isopool batch verify` finds each answer that is missing, double, of another item, or of inputs that have changed."""

import pathlib
from collections.abc import Iterator

import pytest
from batch_command import JobFolder, job_folder, numbers

LINE = ["app.py:square", "in", "-o", "out", "--chunk-size", "4", "--workers", "2", "--retries", "0"]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[JobFolder]:
    with job_folder(tmp_path) as made:
        made.code()
        (made / "in").mkdir()
        made.jsonl(numbers(10, {3: "raise"}), "in/a.jsonl")
        made.jsonl(numbers(14)[10:], "in/b.jsonl")
        yield made


def verified(folder: JobFolder, code: int) -> str:
    return folder.run("verify", "out", code=code).out


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_a_job_is_verified_after_each_kind_of_run(folder: JobFolder, format: str) -> None:
    line = [*LINE, "--format", format]
    folder.run(*line, code=3)
    expected = "verified: 13 results in 4 parts, 1 items set aside; each is that of its input\n"
    assert verified(folder, 0) == expected
    folder.code("def misbehave(bad): pass")
    folder.run("retry", "out", code=0)
    assert verified(folder, 0) == "verified: 14 results in 5 parts, 0 items set aside; each is that of its input\n"
    folder.jsonl(numbers(16)[10:], "in/b.jsonl")
    assert "the input b.jsonl has changed since the run" in verified(folder, 1)
    folder.run(*line, "--update", code=0)
    (folder / "in" / "b.jsonl").unlink()
    folder.jsonl(numbers(20)[16:], "in/c.jsonl")
    assert "the input c.jsonl is new since the run" in verified(folder, 1)
    folder.run(*line, "--update", code=0)
    assert verified(folder, 0).startswith("verified: 20 results in ")


def test_each_harm_to_a_part_is_found(folder: JobFolder) -> None:
    folder.run(*LINE, code=3)
    part, other = folder.out / "part-000000.jsonl", folder.out / "part-000001.jsonl"
    text = part.read_bytes()
    for harm, message in (
        (text.replace(b'"i1"', b'"i0"'), "part-000000.jsonl lacks i1"),
        (text.replace(b'"i1"', b'"i0"'), "part-000000.jsonl has in excess i0"),
        (text.replace(b'"square":1', b'"square":11'), "part-000000.jsonl has 70 bytes, and the run wrote 69"),
        (text.replace(b'"i1"', b'"i1 '), "part-000000.jsonl has 0 rows that can be read, and the run wrote 3"),
    ):
        part.write_bytes(harm)
        assert message in verified(folder, 1), message
    part.unlink()
    assert "part-000000.jsonl" in verified(folder, 1)
    part.write_bytes(text)
    (folder.out / "part-000017.jsonl").write_bytes(other.read_bytes())
    assert "part-000017.jsonl is a part that no plan names" in verified(folder, 1)
    (folder.out / "part-000017.jsonl").unlink()
    assert verified(folder, 0).startswith("verified: 13 results in 4 parts")


def test_what_is_not_done_is_found(folder: JobFolder) -> None:
    folder.run(*LINE, "--shard", "0/2", code=3)
    assert "1 of 2 shards have not begun" in verified(folder, 1)
    folder.run(*LINE, "--shard", "1/2", code=0)
    assert verified(folder, 0).startswith("verified: 13 results in 4 parts")
    folder.run(*LINE[:3], "killed", *LINE[4:], environment={"ISOPOOL_BATCH_CRASH_AT": "after-chunk-commit:1"})
    assert "3 of 4 chunks are not done" in folder.run("verify", "killed", code=1).out
