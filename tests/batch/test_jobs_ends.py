# SPDX-License-Identifier: BSD-3-Clause
"""Ends of a run before all is done: a limit of failures, Ctrl-C, a full disk, results that no part can have."""

import os
import pathlib
import signal
import subprocess
import textwrap
from collections.abc import Iterator

import pytest
from batch_command import ISOPOOL, LIMIT, JobFolder, Running, job_folder, numbers, squares, wait_until


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[JobFolder]:
    with job_folder(tmp_path) as made:
        made.code()
        yield made


@pytest.mark.parametrize("limit", ["3", "10%"])
def test_too_many_failures(folder: JobFolder, limit: str) -> None:
    # The share counts from 100 items on: of these, every sixth one is wrong.
    count = 240
    bad = {n: "raise" for n in range(0, count, 6)}
    folder.jsonl(numbers(count, bad))
    line = ["app.py:square", "in.jsonl", "-o", "out", "--chunk-size", "20", "--retries", "0"]
    ended = folder.run(*line, "--max-failures", limit, code=4)
    assert ended.last_line.startswith("stopped: too many failures: ")
    assert "items were set aside, more than allowed; the last one is i" in ended.last_line
    assert ended.last_line.endswith(": this item is wrong. The same command goes on from here")
    parts = folder.parts()
    aside = folder.quarantine()
    assert 3 < len(aside) < len(bad)
    computed = folder.trace("end")
    assert len(computed) < count - len(bad)
    if limit == "10%":
        assert len(aside) + len(computed) >= 100

    # With another limit it goes on; what was done is kept, in parts and beside them.
    folder.run(*line, "--max-failures", "40", code=3)
    assert folder.rows() == squares(count, bad)
    assert set(folder.quarantine()) == {f"i{n}" for n in bad}
    assert parts.items() <= folder.parts().items()
    assert sorted(folder.trace("end")) == sorted(squares(count, bad))
    assert folder.leftovers() == []


def test_one_interrupt(folder: JobFolder) -> None:
    count = 200
    folder.jsonl(numbers(count))
    names = [f"i{n}" for n in range(count)]
    folder.close_gates(names)
    line = ["app.py:square", "in.jsonl", "-o", "out", "--chunk-size", "100"]
    running = folder.start(*line)
    wait_until(lambda: len(folder.trace("begin")) == 2, "an item in each of two workers")
    # As a terminal does it: the signal goes to the process group.
    interrupt(running)

    # Lets through what is in flight, and what is begun before the driver has seen the signal.
    def ended() -> bool:
        for item in folder.trace("begin"):
            folder.open_gate(item)
        return running.ended()

    wait_until(ended, "the end of the run")
    end = running.wait()
    assert end.code == 130, end
    assert end.last_line.startswith("stopped: interrupted: ")
    assert end.last_line.endswith("The same command goes on from here")
    running.wait_for_no_process()
    # The items in flight were completed.
    begun = folder.trace("begin")
    assert sorted(begun) == sorted(folder.trace("end"))
    assert len(begun) < count

    folder.open_all_gates()
    folder.run(*line, code=0)
    assert folder.rows() == squares(count)
    # None was computed twice.
    assert sorted(folder.trace("begin")) == sorted(names)


def interrupt(running: Running) -> None:
    os.killpg(running.process.pid, signal.SIGINT)


def test_two_interrupts(folder: JobFolder) -> None:
    folder.jsonl(numbers(8))
    folder.close_gates(["i3", "i5"])
    line = ["app.py:square", "in.jsonl", "-o", "out", "--chunk-size", "4"]
    running = folder.start(*line)
    wait_until(lambda: {"i3", "i5"} <= set(folder.trace("begin")), "both items that wait")
    status = pathlib.Path(f"/proc/{running.process.pid}/status")

    def is_pending() -> bool:
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return bool((int(fields["ShdPnd"], 16) | int(fields["SigPnd"], 16)) >> (signal.SIGINT - 1) & 1)

    interrupt(running)
    # Two signals that are sent before the first one is taken are one.
    wait_until(lambda: not is_pending(), "the first signal")
    assert not running.ended()
    interrupt(running)
    # The items in flight wait for ever.
    assert running.wait().code == 130
    running.wait_for_no_process()
    folder.open_all_gates()
    folder.run(*line, code=0)
    assert folder.rows() == squares(8)
    assert folder.leftovers() == []


def can_mount(path: pathlib.Path) -> str:
    """Why no file system of its own can be mounted, or nothing."""
    words = ["unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)]
    try:
        tried = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, check=False)
    except OSError as error:
        return str(error)
    return "" if tried.returncode == 0 else tried.stderr.strip()


# Room that is enough for: a part of the plan, the first items, a chunk, two chunks and a part.
@pytest.mark.parametrize("room", ["16k", "140k", "300k", "700k", "1000k"])
@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_a_full_disk(folder: JobFolder, room: str, format: str) -> None:
    disk = folder / "disk"
    disk.mkdir()
    reason = can_mount(disk)
    if reason:
        pytest.skip(f"no tmpfs can be mounted: {reason}")
    count = 40
    folder.code(
        """
        import random
        def large(row):
            trace("begin", row)
            misbehave(row.get("bad"))
            # Parquet must not make it small.
            return {"text": random.Random(row["n"]).randbytes(20_000).hex()}
        """
    )
    folder.jsonl(numbers(count, {7: "raise", 33: "raise"}))
    line = f"{ISOPOOL} batch app.py:large in.jsonl -o disk/out --chunk-size 10 --retries 0 --format {format}"
    script = f"""
        mount -t tmpfs -o size={room} tmpfs disk
        {line}
        echo "exit code $?"
        mount -o remount,size=100m disk
        {line}
        echo "exit code $?"
        cp -r disk/out {folder.out}
        """
    ended = Running(folder.path, ["unshare", "-rm", "sh", "-c", textwrap.dedent(script)], {}).wait()
    codes = [text for text in ended.out.splitlines() if text.startswith("exit code")]
    assert codes == ["exit code 4", "exit code 3"], ended
    assert "stopped: no room on the disk: " in ended.out
    rows = folder.rows()
    assert list(rows) == [f"i{n}" for n in range(count) if n not in (7, 33)]
    assert all(len(row["text"]) == 40_000 for row in rows.values())
    assert set(folder.quarantine()) == {"i7", "i33"}
    assert folder.leftovers() == []


def test_results_that_do_not_go_together_with_the_others(folder: JobFolder) -> None:
    folder.code("def mixed(row): return {'value': 'a word' if row['n'] in (5, 10) else row['n']}")
    folder.jsonl(numbers(12))
    line = ["app.py:mixed", "in.jsonl", "-o", "out", "--chunk-size", "4", "--format"]
    folder.run(*line, "parquet", code=3)
    assert {identity: row["value"] for identity, row in folder.rows().items()} == {
        f"i{n}": n for n in range(12) if n not in (5, 10)
    }
    aside = folder.quarantine()
    assert set(aside) == {"i5", "i10"}
    for row in aside.values():
        assert (row["reason"], row["phase"], row["type"], row["attempts"]) == ("raised", "write", "ValueError", 1)
        assert "column 'value' has the type int64, and the value of this item is 'a word' (string)" in row["message"]
    assert folder.leftovers() == []
    # JSON lines take any.
    assert "holds a run that differs in the arguments" in folder.run(*line, "jsonl", code=1).err
    folder.run(*line, "jsonl", "--force", code=0)
    assert folder.rows()["i5"]["value"] == "a word"


def test_results_that_no_table_can_have(folder: JobFolder) -> None:
    # The second part has numbers of more digits than Parquet takes, and nothing else.
    folder.code("import decimal\ndef power(row): return {'value': decimal.Decimal(10) ** (row['n'] * 20)}")
    folder.jsonl(numbers(8))
    folder.run("app.py:power", "in.jsonl", "-o", "out", "--chunk-size", "4", "--format", "parquet", code=3)
    assert {identity: str(row["value"]) for identity, row in folder.rows().items()} == {
        f"i{n}": "1" + "0" * (20 * n) for n in range(4)
    }
    aside = folder.quarantine()
    assert set(aside) == {"i4", "i5", "i6", "i7"}
    assert {(row["reason"], row["phase"]) for row in aside.values()} == {("raised", "write")}
    assert {row["message"] for row in aside.values()} == {
        "column 'value' can't have the value of this item: a decimal of more than 76 digits"
    }
