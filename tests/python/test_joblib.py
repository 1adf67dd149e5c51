# SPDX-License-Identifier: BSD-3-Clause
"""isopool as joblib's backend."""

import multiprocessing
import os
import pathlib
import signal
import threading
import time

import numpy as np
import pytest

joblib = pytest.importorskip("joblib", reason="joblib is not installed: pip install joblib")

import isopool  # noqa: E402
import isopool.joblib  # noqa: E402, F401


def test_parallel_runs_in_the_workers() -> None:
    with joblib.parallel_config("isopool", n_jobs=2):
        results = joblib.Parallel()(joblib.delayed(lambda x: (x * x, os.getpid()))(each) for each in range(50))
    assert [square for square, _ in results] == [each**2 for each in range(50)]
    assert os.getpid() not in {process for _, process in results}


def test_arrays_cross_and_results_come_as_a_generator() -> None:
    array = np.arange(100000.0)
    with joblib.parallel_config("isopool", n_jobs=2):
        sums = joblib.Parallel(return_as="generator")(joblib.delayed(np.sum)(array * each) for each in range(10))
        assert list(sums) == [array.sum() * each for each in range(10)]


def test_arrays_of_mapped_files_are_maps_in_the_workers(tmp_path: pathlib.Path) -> None:
    def fill(array: np.ndarray, row: int) -> str:
        array[row] = row * 10
        return type(array).__name__

    def look(array: np.ndarray) -> list[float]:
        assert not array.flags.writeable
        return array.sum(axis=0).tolist()

    out = np.memmap(tmp_path / "out", np.float64, "w+", shape=(8, 3))
    with joblib.parallel_config("isopool", n_jobs=2):
        assert joblib.Parallel()(joblib.delayed(fill)(out, row) for row in range(4)) == ["memmap"] * 4
        joblib.Parallel()(joblib.delayed(fill)(out[4:, 1:], row) for row in range(4))
        expected = np.zeros((8, 3))
        for row in range(4):
            expected[row] = row * 10
            expected[4 + row, 1:] = row * 10
        assert np.array_equal(out, expected)
        fortran = np.memmap(tmp_path / "fortran", np.float32, "w+", shape=(3, 5), order="F")
        fortran[:] = np.arange(15).reshape(3, 5)
        fortran.flush()
        read = np.memmap(tmp_path / "fortran", np.float32, "r", shape=(3, 5), order="F")
        parts = [read, read.T, read[::-1, ::2], read[1:], read.T[2]]
        assert joblib.Parallel()(joblib.delayed(look)(part) for part in parts) == [
            part.sum(axis=0).tolist() for part in parts
        ]
        # What a program has changed in a map of its own is not in the file.
        own = np.memmap(tmp_path / "out", np.float64, "c", shape=(8, 3))
        own[:] = 1
        (same,) = joblib.Parallel()(joblib.delayed(np.sum)(each) for each in (own,))
        assert same == 24


def test_an_error_is_raised_and_the_backend_goes_on() -> None:
    with joblib.parallel_config("isopool", n_jobs=2):
        with pytest.raises(ZeroDivisionError):
            joblib.Parallel()(joblib.delayed(divmod)(1, each) for each in (1, 0, 2))
        assert joblib.Parallel()(joblib.delayed(abs)(each) for each in (-1, -2)) == [1, 2]


def test_a_dead_worker_ends_its_call_of_parallel_only() -> None:
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with joblib.parallel_config("isopool", n_jobs=2):
        with pytest.raises(isopool.WorkerLost):
            joblib.Parallel()(joblib.delayed(die)() for _ in range(2))
        assert joblib.Parallel()(joblib.delayed(abs)(each) for each in (-1, -2)) == [1, 2]


def test_a_time_limit_of_parallel_is_kept() -> None:
    with joblib.parallel_config("isopool", n_jobs=1):
        with pytest.raises(multiprocessing.TimeoutError):
            joblib.Parallel(n_jobs=2, timeout=0.3)(joblib.delayed(time.sleep)(each) for each in (0, 600))


def remember(value: int) -> None:
    os.environ["REMEMBERED"] = str(value)


def remembered() -> str | None:
    return os.environ.get("REMEMBERED")


def test_an_initializer_runs_in_the_workers() -> None:
    with joblib.parallel_config("isopool", n_jobs=2):
        parallel = joblib.Parallel(initializer=remember, initargs=(7,))
        assert parallel(joblib.delayed(remembered)() for _ in range(4)) == ["7"] * 4


def test_short_tasks_are_batched(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    submit = isopool.joblib.IsopoolBackend.submit

    def counted(*args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        return submit(*args, **kwargs)

    monkeypatch.setattr(isopool.joblib.IsopoolBackend, "submit", counted)
    with joblib.parallel_config("isopool", n_jobs=2):
        assert joblib.Parallel()(joblib.delayed(abs)(-each) for each in range(5000)) == [*range(5000)]
    assert calls < 500


def test_an_error_in_one_thread_does_not_end_the_tasks_of_another() -> None:
    results: list[list[int]] = []

    def other() -> None:
        with joblib.parallel_config("isopool", n_jobs=2):
            results.append(joblib.Parallel(batch_size=1)(joblib.delayed(later)(each) for each in range(10)))

    thread = threading.Thread(target=other)
    thread.start()
    with joblib.parallel_config("isopool", n_jobs=2):
        for _ in range(5):
            with pytest.raises(ZeroDivisionError):
                joblib.Parallel(batch_size=1)(joblib.delayed(divmod)(1, each) for each in (1, 0, 2))
    thread.join()
    assert results == [[*range(10)]]


def later(value: int) -> int:
    time.sleep(0.1)
    return value


def test_a_generator_that_is_left_early_leaves_the_workers() -> None:
    with joblib.parallel_config("isopool", n_jobs=2):
        workers = {*joblib.Parallel()(joblib.delayed(os.getpid)() for _ in range(20))}
        generator = joblib.Parallel(return_as="generator", batch_size=1)(joblib.delayed(abs)(-1) for _ in range(100))
        assert next(generator) == 1
        del generator
        assert workers & {*joblib.Parallel(batch_size=1)(joblib.delayed(os.getpid)() for _ in range(50))}


def test_a_forked_process_has_a_backend_of_its_own() -> None:
    with joblib.parallel_config("isopool", n_jobs=1):
        assert joblib.Parallel()(joblib.delayed(abs)(each) for each in (-1, -2)) == [1, 2]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with joblib.parallel_config("isopool", n_jobs=1):
                status = 0 if joblib.Parallel()(joblib.delayed(abs)(each) for each in (-1, -2)) == [1, 2] else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
