# SPDX-License-Identifier: BSD-3-Clause
"""isopool as joblib's backend."""

import multiprocessing
import os
import signal
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
