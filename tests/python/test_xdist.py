# SPDX-License-Identifier: BSD-3-Clause
"""Tests that pytest-xdist distributes to processes may use pools, and crash their workers."""

import pathlib
import subprocess
import sys
import textwrap

PATIENCE = 240
TESTS = """
    import os
    import signal

    import isopool
    import pytest


    @pytest.fixture(scope="session")
    def executor():
        with isopool.Executor(1) as made:
            yield made


    @pytest.mark.parametrize("number", range(8))
    def test_values(executor, number):
        assert executor.submit(lambda x: x * x, number).result() == number**2


    @pytest.mark.parametrize("number", range(2))
    def test_crashes(executor, number):
        with pytest.raises(isopool.WorkerLost):
            executor.submit(lambda: os.kill(os.getpid(), signal.SIGKILL)).result()
"""


def test_each_process_of_xdist_has_a_pool_of_its_own(tmp_path: pathlib.Path) -> None:
    (tmp_path / "test_calls.py").write_text(textwrap.dedent(TESTS))
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", tmp_path],
        cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout
    assert "10 passed" in run.stdout
