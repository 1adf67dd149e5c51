# SPDX-License-Identifier: BSD-3-Clause
"""isopool.batch(): the same jobs as the command's, with functions and datasets of the program."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import isopool
import pytest
from programs import serving


@pytest.fixture
def numbers(tmp_path: pathlib.Path) -> pathlib.Path:
    file = tmp_path / "numbers.jsonl"
    file.write_text("".join(json.dumps({"id": f"n{n}", "n": n}) + "\n" for n in range(40)))
    return file


def rows_of(folder: pathlib.Path) -> dict[str, Any]:
    rows = [json.loads(line) for part in folder.glob("part-*.jsonl") for line in part.read_text().splitlines()]
    found = {row["id"]: row["result"] for row in rows}
    assert len(found) == len(rows), "an item is there twice"
    return found


class Numbers:
    """A dataset."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, item: int) -> int:
        return item


@pytest.fixture
def one_shared_worker(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    address = str(tmp_path / "socket")
    with serving(address):
        monkeypatch.setenv("ISOPOOL_SOCKET", address)
        yield


@pytest.mark.usefixtures("one_shared_worker")
def test_a_crash_in_a_worker_of_several_chunks_is_blamed_on_its_item_only(
    numbers: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    def crashing(row: dict[str, Any]) -> int:
        time.sleep(0.01)  # so that the other chunk's call waits in the worker
        if row["n"] % 20 == 7:
            os.kill(os.getpid(), signal.SIGSEGV)
        return int(row["n"])

    failures: list[isopool.BatchFailure] = []
    isopool.batch(
        crashing, numbers, tmp_path / "out", workers=2, retries=0, chunk_items=5, failure=failures.append
    )
    assert {failure.id for failure in failures} == {"n7", "n27"}
    assert rows_of(tmp_path / "out") == {f"n{n}": n for n in range(40) if n % 20 != 7}


def test_a_function_of_the_program_gets_each_row_and_failures_are_named(
    numbers: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    offset = 100

    def shifted(row: dict[str, Any]) -> int:
        if row["n"] == 7:
            os.kill(os.getpid(), signal.SIGSEGV)
        if row["n"] == 9:
            raise ValueError("nine")
        return int(row["n"]) + offset

    failures: list[isopool.BatchFailure] = []
    seen: list[isopool.BatchProgress] = []
    summary = isopool.batch(
        shifted, numbers, tmp_path / "out", workers=2, retries=0, failure=failures.append, progress=seen.append
    )
    assert summary.end == "finished with quarantine"
    assert (summary.progress.items, summary.progress.done, summary.progress.failed) == (40, 38, 2)
    assert seen[-1].done == 38 and seen[-1].chunks_done == seen[-1].chunks
    by_id = {failure.id: failure for failure in failures}
    assert by_id.keys() == {"n7", "n9"}
    assert by_id["n7"].reason == "crashed" and by_id["n7"].signal == signal.SIGSEGV
    assert "Segmentation fault" in by_id["n7"].crash_log
    assert (by_id["n9"].reason, by_id["n9"].type, by_id["n9"].message) == ("raised", "ValueError", "nine")
    assert rows_of(tmp_path / "out") == {f"n{n}": n + 100 for n in range(40) if n not in (7, 9)}


def test_a_class_and_a_dataset_of_the_program_go_by_value(tmp_path: pathlib.Path) -> None:
    class Doubled:
        def __init__(self) -> None:
            self.made_in = os.getpid()

        def __call__(self, items: list[int]) -> list[tuple[int, bool, int]]:
            return [(2 * item, os.getpid() == self.made_in, len(items)) for item in items]

    summary = isopool.batch(
        Doubled, Numbers(), tmp_path / "out", workers=2, batch_size=5, chunk_items=10, format="jsonl"
    )
    assert summary.end == "all right"
    assert rows_of(tmp_path / "out") == {f"dataset:{n}": [2 * n, True, 5] for n in range(20)}


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_the_rows_of_a_data_frame_are_items(tmp_path: pathlib.Path, library: str) -> None:
    table = pytest.importorskip(library)
    columns = {"n": list(range(30)), "x": [float("nan"), 0.5, 1.0] * 10, "text": ["a", None, "é"] * 10}
    frame = (table.table if library == "pyarrow" else table.DataFrame)(columns)
    pickled = {"format": "jsonl", "workers": 2, "chunk_items": 7}

    def described(row: dict[str, Any]) -> str:
        return repr((row["n"], row["x"], row["text"]))

    isopool.batch(described, frame, tmp_path / "out", **pickled)
    wanted = [repr(tuple(columns[name][n] for name in columns)) for n in range(30)]
    assert rows_of(tmp_path / "out") == {f"table.parquet:{n}": wanted[n] for n in range(30)}
    again = isopool.batch(described, frame, tmp_path / "out", **pickled)
    assert (again.progress.done, again.progress.done_now) == (30, 0)
    with pytest.raises(isopool.BatchRefused, match="update is for files"):
        isopool.batch(described, frame, tmp_path / "out", update=True, **pickled)
    if library == "pyarrow":
        isopool.batch(described, frame.to_batches()[0], tmp_path / "out3", **pickled)
        assert rows_of(tmp_path / "out3") == rows_of(tmp_path / "out")
    if library == "pandas":
        nullable = frame.assign(x=frame["x"].astype("Float64"))
        isopool.batch(described, nullable, tmp_path / "out3", **pickled)
        assert rows_of(tmp_path / "out3")["table.parquet:0"] == "(0, None, 'a')"
        with pytest.raises(TypeError, match="Series"):
            isopool.batch(described, frame["n"], tmp_path / "out2", **pickled)
        with pytest.raises(TypeError, match="column 0 is not named by a text"):
            isopool.batch(described, table.DataFrame([[1, 2]]), tmp_path / "out2", **pickled)
    if library == "polars":
        with pytest.raises(TypeError, match="Python objects"):
            isopool.batch(described, table.DataFrame({"o": [object()]}), tmp_path / "out2", **pickled)
        with pytest.raises(TypeError, match="LazyFrame: give what its collect"):
            isopool.batch(described, frame.lazy(), tmp_path / "out2", **pickled)


def test_the_same_call_goes_on_and_another_job_is_refused(numbers: pathlib.Path, tmp_path: pathlib.Path) -> None:
    model = tmp_path / "app.py"
    model.write_text("def same(row):\n    return row['n']\n")
    first = isopool.batch(f"{model}:same", numbers, tmp_path / "out", workers=1)
    again = isopool.batch(f"{model}:same", numbers, tmp_path / "out", workers=1)
    assert (first.progress.done_now, again.progress.done_now, again.progress.done) == (40, 0, 40)
    with pytest.raises(isopool.BatchRefused, match="differs in the arguments"):
        isopool.batch(f"{model}:same", numbers, tmp_path / "out", workers=1, column="n")


def test_a_refused_call_leaves_the_function_of_the_running_job(
    numbers: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    output = tmp_path / "out"
    refused: list[str] = []

    def first(row: dict[str, Any]) -> int:
        return int(row["n"])

    def second(row: dict[str, Any]) -> int:
        return -1

    def call_another(_: object) -> None:
        if not refused:
            with pytest.raises(isopool.BatchRefused) as raised:
                isopool.batch(second, numbers, output, workers=1)
            refused.append(str(raised.value))

    summary = isopool.batch(first, numbers, output, workers=2, chunk_items=2, progress=call_another)
    assert (summary.end, rows_of(output)) == ("all right", {f"n{n}": n for n in range(40)})
    assert "another run uses" in refused[0]
    before = sorted(path.name for path in output.iterdir())
    with pytest.raises(isopool.BatchRefused, match="differs in the model"):
        isopool.batch(second, numbers, output, workers=1)
    assert sorted(path.name for path in output.iterdir()) == before


def test_after_a_correction_the_quarantine_is_run_again(numbers: pathlib.Path, tmp_path: pathlib.Path) -> None:
    model = tmp_path / "app.py"
    model.write_text("def inverse(row):\n    return 1 / row['n']\n")
    first = isopool.batch(f"{model}:inverse", numbers, tmp_path / "out", workers=1)
    assert first.progress.failed == 1
    model.write_text("def inverse(row):\n    return 1 / row['n'] if row['n'] else None\n")
    again = isopool.retry_batch(tmp_path / "out", workers=1)
    assert (again.end, again.progress.done) == ("all right", 40)
    assert rows_of(tmp_path / "out")["n0"] is None


def test_a_retry_has_the_options_of_the_run(numbers: pathlib.Path, tmp_path: pathlib.Path) -> None:
    model = tmp_path / "app.py"
    source = """
import os, torch
def look(row):
    {first}
    try:
        os.listdir("/var")
        sees = True
    except PermissionError:
        sees = False
    return [torch.get_num_threads(), sees, os.environ["COLOUR"]]
"""
    model.write_text(source.format(first="row['n'] % 20 or row['no']"))
    options = isopool.PoolOptions(
        sandbox="strict", threads_per_worker=2, sandbox_read=[str(tmp_path)], sandbox_write=[str(tmp_path)],
        variables={"COLOUR": "red"}, workers=1,
    )  # fmt: skip
    first = isopool.batch(f"{model}:look", numbers, tmp_path / "out", options=options)
    assert first.progress.failed == 2
    model.write_text(source.format(first="pass"))
    with pytest.raises(isopool.BatchRefused, match="had the variable COLOUR"):
        isopool.retry_batch(tmp_path / "out")
    again = isopool.retry_batch(tmp_path / "out", options=isopool.PoolOptions(variables={"COLOUR": "blue"}))
    assert again.end == "all right"
    rows = rows_of(tmp_path / "out")
    assert rows["n1"][:2] == rows["n0"][:2] == [2, False]
    assert (rows["n1"][2], rows["n0"][2]) == ("red", "blue")


def test_an_exception_of_a_callback_ends_the_run_and_what_is_done_stays(
    numbers: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    def fails(row: dict[str, Any]) -> int:
        raise ValueError(row["id"])

    def stop(failure: isopool.BatchFailure) -> None:
        raise LookupError(failure.id)

    # Without a limit the run may end before it notices the exception, because all items fail alike.
    with pytest.raises(LookupError):
        isopool.batch(fails, numbers, tmp_path / "out", workers=1, retries=0, max_failures=40, failure=stop)
    ended = isopool.batch(fails, numbers, tmp_path / "out", workers=1, retries=0, max_failures=40)
    assert ended.progress.failed == 40


def test_ctrl_c_ends_a_run_and_the_next_one_completes_it(tmp_path: pathlib.Path) -> None:
    # So many parts that the run can't end before it notices the signal.
    numbers = tmp_path / "many.jsonl"
    numbers.write_text("".join(json.dumps({"id": f"n{n}", "n": n}) + "\n" for n in range(2000)))
    program = tmp_path / "program.py"
    program.write_text(
        """
import os, signal, sys
import isopool

def interrupt_once(row):
    if row["n"] == 20 and not os.path.exists(sys_argv[1]):
        open(sys_argv[1], "w").close()
        with open(sys_argv[4]) as driver:
            os.kill(int(driver.read()), signal.SIGINT)
    return row["n"]

# A shell starts programs in the background with this signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys_argv = sys.argv[:]
with open(sys.argv[4], "w") as file:
    file.write(str(os.getpid()))
try:
    isopool.batch(interrupt_once, sys.argv[2], sys.argv[3], workers=1, chunk_items=5)
except KeyboardInterrupt:
    sys.exit(42)
"""
    )
    marker, output = tmp_path / "marker", tmp_path / "out"
    command = [sys.executable, *map(str, (program, marker, numbers, output, tmp_path / "driver"))]
    interrupted = subprocess.run(command, timeout=120)
    assert interrupted.returncode == 42 and marker.exists()
    assert len(rows_of(output)) < 2000
    completed = subprocess.run(command, timeout=120)
    assert completed.returncode == 0
    assert rows_of(output) == {f"n{n}": n for n in range(2000)}


def test_what_is_no_job_is_refused_in_one_line(numbers: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with pytest.raises(isopool.BatchRefused, match="there is no file"):
        isopool.batch("missing.py:f", numbers, tmp_path / "out")
    with pytest.raises(TypeError, match="give paths, or a dataset"):
        isopool.batch(len, iter([1]), tmp_path / "out")
    with pytest.raises(ValueError, match="choose list, stack, pad, bucket"):
        isopool.batch(len, numbers, tmp_path / "out", collate="heap")  # type: ignore[arg-type]
    with pytest.raises(isopool.BatchRefused, match="ValueError: broken"):
        broken = tmp_path / "broken.py"
        broken.write_text("raise ValueError('broken')\n")
        isopool.batch(f"{broken}:f", numbers, tmp_path / "out2", workers=1)
    with pytest.raises(isopool.BatchRefused, match="no journal"):
        isopool.retry_batch(tmp_path)
