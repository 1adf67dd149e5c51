# SPDX-License-Identifier: BSD-3-Clause
"""What one output folder is for: shards, one run at a time, no foreign files; output for programs; wrong usage."""

import json
import pathlib
from collections.abc import Iterator

import pytest
from batch_command import JobFolder, job_folder, numbers, rows_of, squares, wait_until

COUNT = 40
BAD = {3: "raise", 4: "raise", 22: "segfault", 39: "raise"}
LINE = ["app.py:square", "in.jsonl", "-o", "out"]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[JobFolder]:
    with job_folder(tmp_path) as made:
        made.code()
        yield made


def shard(index: int, count: int = 2) -> list[str]:
    return ["--shard", f"{index}/{count}"]


def test_shards_at_the_same_time(folder: JobFolder) -> None:
    folder.jsonl(numbers(COUNT, BAD))
    # Machines of different sizes.
    both = [folder.start(*LINE, *shard(i), "--workers", str(i + 1)) for i in range(2)]
    ends = [each.wait() for each in both]
    assert [end.code for end in ends] == [3, 3], ends
    for each in both:
        each.wait_for_no_process()
    assert folder.rows() == squares(COUNT, BAD)
    of_each = [folder.quarantine(f"quarantine-{i}-of-2") for i in range(2)]
    assert sorted([*of_each[0], *of_each[1]]) == sorted(f"i{n}" for n in BAD)
    assert folder.leftovers() == []
    [first, *_] = folder.run("report", "out", code=0).out.splitlines()
    assert first.startswith("36 of 40 items have a result, in ") and first.endswith("; 4 were set aside")

    # A retry gives each shard's items a part of their own, and leaves the others.
    parts = folder.parts()
    folder.code("def misbehave(bad): pass")
    folder.run("retry", "out", code=0)
    assert parts.items() <= folder.parts().items()
    assert folder.rows() == squares(COUNT)
    assert not list(folder.job.glob("quarantine*"))
    for i in range(2):
        folder.run(*LINE, *shard(i), code=0)
    assert folder.rows() == squares(COUNT)


def test_shards_that_do_not_go_together(folder: JobFolder) -> None:
    folder.jsonl(numbers(8))
    folder.run(*LINE, "--chunk-size", "2", *shard(0), code=0)
    parts = folder.parts()
    assert set(folder.rows()) == {"i0", "i1", "i4", "i5"}
    for words, text in (
        ([*LINE], "holds a run of shard 0 of 2: name another folder"),
        ([*LINE, "--force"], "holds a run of shard 0 of 2: name another folder"),
        ([*LINE, *shard(1, 3)], "holds a run of shard 0 of 2: name another folder"),
        ([*LINE, "--chunk-size", "3", *shard(1)], "with 2 items per chunk: choose --chunk-size 2"),
        (["app.py:misbehave", *LINE[1:], *shard(1)], "holds a run of shard 0 of 2 that differs in the arguments"),
    ):
        assert text in folder.run(*words, code=1).err
        assert folder.parts() == parts
    folder.run(*LINE, "--chunk-size", "2", *shard(1), code=0)
    assert folder.rows() == squares(8)

    # Each shard that is forced removes its own parts alone.
    folder.code("def square(row): return {'square': row['n'] ** 2}  # changed")
    for i in range(2):
        folder.run(*LINE, "--chunk-size", "2", "--force", *shard(i), code=0)
        assert folder.rows() == squares(8)


def test_a_second_run_at_the_same_time_is_refused(folder: JobFolder) -> None:
    folder.jsonl(numbers(4))
    folder.close_gates(["i2"])
    first = folder.start(*LINE)
    wait_until(lambda: "i2" in folder.trace("begin"), "an item that waits")
    for words in (LINE, [*LINE, "--force"], ["retry", "out"]):
        ended = folder.run(*words, code=1)
        assert "isopool batch: output: another run uses " in ended.err
        assert ended.err.endswith("/out: wait for its end, or end it\n")
    # But one may look.
    assert folder.run("report", "out", code=0).out.endswith("; 0 were set aside\n")
    folder.open_all_gates()
    end = first.wait()
    assert end.code == 0, end
    assert folder.rows() == squares(4)


def test_shards_that_have_not_begun_are_reported(folder: JobFolder) -> None:
    folder.jsonl(numbers(40))
    for i in (0, 2):
        folder.run(*LINE, *shard(i, 4), "--chunk-size", "5", code=0)
    text = folder.run("report", "out", code=0).out
    assert text.startswith("20 of 40 items have a result, in 4 of 4 parts; 0 were set aside\n")
    assert "shard 1 has not begun" in text and "shard 3 has not begun" in text
    assert "20 items are in shards that have not begun" in text
    found = json.loads(folder.run("report", "out", "--json", code=0).out)
    assert (found["items"], found["done"], found["shards_not_begun"]) == (40, 20, [1, 3])


def test_a_refused_shard_does_not_stop_a_retry(folder: JobFolder) -> None:
    folder.jsonl(numbers(10, {1: "raise"}))
    folder.run(*LINE, code=3)
    assert "name another folder" in folder.run(*LINE, *shard(0, 4), code=1).err
    folder.code("def misbehave(bad): pass")
    folder.run("retry", "out", code=0)
    assert folder.rows() == squares(10)


def test_a_folder_with_other_files_is_refused(folder: JobFolder) -> None:
    folder.jsonl(numbers(4))
    folder.out.mkdir()
    (folder.out / "thesis.txt").write_text("years of work")
    for more in ([], ["--force"]):
        ended = folder.run(*LINE, *more, code=1)
        assert "out holds files, but no batch job (__job__), or one of an earlier version" in ended.err
    assert [path.name for path in folder.out.iterdir()] == ["thesis.txt"]
    for words in (["report", "out"], ["retry", "out"], ["-o", "out", "--only", "i1", "--inline"]):
        assert "out is not the folder of a batch job: it has no journal" in folder.run(*words, code=1).err
    (folder / "file").write_text("")
    assert "file" in folder.run(*LINE[:3], "file", code=1).err


@pytest.mark.parametrize("loss", ["removed", "emptied"])
def test_parts_of_a_lost_journal_stay(folder: JobFolder, loss: str) -> None:
    folder.jsonl(numbers(8))
    folder.run(*LINE, code=0)
    parts = folder.parts()
    for journal in folder.job.glob("journal*"):
        journal.unlink()
        if loss == "emptied" and journal.suffix == ".sqlite":
            journal.write_bytes(b"")
    for more in ([], ["--force"]):
        ended = folder.run(*LINE, *more, code=1)
        assert "that no plan in its journal names: the journal is lost or of another job" in ended.err
        assert folder.parts() == parts
    # Also for another job.
    folder.code("def square(row): return {'square': 0}")
    folder.run(*LINE, "--force", code=1)
    assert folder.parts() == parts


def test_force_removes_no_file_that_is_only_named_like_a_part(folder: JobFolder) -> None:
    folder.jsonl(numbers(8))
    folder.run(*LINE, "--chunk-size", "4", code=0)
    [first, *_] = sorted(folder.parts())
    own = ["part-notes.jsonl", f"{first}.bak", "part-1.jsonl", "part-000099.jsonl"]
    for name in own[:3]:
        (folder.out / name).write_text("mine")
    folder.code("def square(row): return {'square': row['n'] ** 2}  # changed")
    folder.run(*LINE, "--chunk-size", "4", "--force", code=0)
    # A file with the name of a part that the job has not planned is not removed either.
    (folder.out / own[3]).write_text("mine")
    folder.code("def square(row): return {'square': row['n'] ** 2}  # changed again")
    ended = folder.run(*LINE, "--chunk-size", "4", "--force", code=1)
    assert f"holds {own[3]} that no plan in its journal names" in ended.err
    assert [(folder.out / name).read_text() for name in own] == ["mine"] * 4


def test_a_part_that_is_gone_is_made_again_and_one_that_has_changed_is_named(folder: JobFolder) -> None:
    folder.jsonl(numbers(8))
    folder.run(*LINE, "--chunk-size", "4", code=0)
    parts = folder.parts()
    [first, second] = sorted(parts)
    (folder.out / first).unlink()
    ended = folder.run(*LINE, "--chunk-size", "4", code=0)
    assert "1 part was gone and was made again" in ended.err + ended.out
    assert folder.parts() == parts
    with open(folder.out / second, "rb+") as file:
        file.truncate(10)
    ended = folder.run(*LINE, "--chunk-size", "4", code=1)
    assert f"{second} has 10 bytes, and the run wrote {len(parts[second])}: remove it" in ended.err
    (folder.out / second).unlink()
    folder.run(*LINE, "--chunk-size", "4", code=0)
    assert folder.parts() == parts


def test_output_for_programs(folder: JobFolder) -> None:
    folder.jsonl(numbers(6, {2: "raise", 4: "segfault"}))
    ended = folder.run(*LINE, "--json", code=3)
    events = ended.events
    assert {event["event"] for event in events} == {"progress", "failure", "end"}
    failures = {event["id"]: event for event in events if event["event"] == "failure"}
    assert (failures["i2"]["reason"], failures["i2"]["type"]) == ("raised", "ValueError")
    assert (failures["i4"]["reason"], failures["i4"]["signal"]) == ("crashed", 11)
    last = [event for event in events if event["event"] == "progress"][-1]
    assert (last["items"], last["done"], last["quarantined"]) == (6, 4, 2)
    assert last["chunks_done"] == last["chunks"]
    assert events[-1]["event"] == "end"
    assert events[-1]["end"] == "finished with quarantine"
    assert events[-1]["message"].startswith("finished with quarantine: 4 of 6 items have a result, 2 set aside")
    assert ended.err == ""
    [summary] = rows_of_json(folder.job / "summary.json")
    assert (summary["end"], summary["items"], summary["done"]) == ("finished with quarantine", 6, 4)


def rows_of_json(path: pathlib.Path) -> list[dict[str, object]]:
    copy = path.with_suffix(".jsonl")
    copy.write_text(path.read_text())
    found = rows_of(copy)
    copy.unlink()
    return found


def test_a_limit_that_a_shared_supervisor_would_ignore_is_refused(folder: JobFolder) -> None:
    folder.jsonl(numbers(3))
    shared = {"ISOPOOL_SOCKET": str(folder / "no-socket")}
    ended = folder.run(*LINE, "--memory", "200MiB", code=1, environment=shared)
    assert "--memory" in ended.err and "ISOPOOL_SOCKET" in ended.err and "no-socket" in ended.err


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["app.py:square", "in.jsonl"],
        ["-o", "out"],
        [*LINE, "--unknown"],
        [*LINE, "--batch-size", "many"],
        [*LINE, "--collate", "heap"],
        [*LINE, "--timeout", "soon"],
        [*LINE, "--timeout", "0s"],
        [*LINE, "--memory", "much"],
        [*LINE, "--max-failures", "few"],
        [*LINE, "--max-failures", "-1"],
        [*LINE, "--max-failures", "nan"],
        [*LINE, "--max-failures", "101%"],
        [*LINE, "--shard", "2/2"],
        [*LINE, "--shard", "1"],
        [*LINE, "--shard", "-1/2"],
        [*LINE, "--shard", "-3/-1"],
        [*LINE, "--only", "i1"],
        [*LINE, "--inline"],
        ["report"],
        ["retry"],
    ],
    ids=lambda words: " ".join(words) or "nothing",
)
def test_wrong_usage(folder: JobFolder, words: list[str]) -> None:
    folder.jsonl(numbers(2))
    ended = folder.run(*words, code=2)
    assert ended.err != ""
    assert not folder.out.exists()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["app.py", *LINE[1:]], "name the function or class of app.py, as in app.py:embed"),
        (["missing.py:f", *LINE[1:]], "model: there is no file missing.py"),
        (["app.py:", *LINE[1:]], "no name after the colon"),
        ([*LINE, "--preprocess", "app.py"], "preprocess is FILE.py:FUNCTION, not app.py"),
        ([*LINE, "--collate", "pad"], "to combine items, choose how many make one call"),
        ([LINE[0], "-o", "out"], "a batch job needs an input"),
    ],
)
def test_a_job_that_is_impossible(folder: JobFolder, words: list[str], text: str) -> None:
    folder.jsonl(numbers(2))
    ended = folder.run(*words, code=1)
    assert text in ended.err
    assert len(ended.err.splitlines()) == 1
    assert not folder.out.exists()


def test_help(folder: JobFolder) -> None:
    ended = folder.run("--help", code=0)
    assert "Exit code 0: each input has a result" in ended.out
