# SPDX-License-Identifier: BSD-3-Clause
"""CPython's own tests of executors pass with isopool.Executor."""

import importlib.util
import os
import pathlib
import re
import site
import subprocess
import sys
import venv

import pytest

HERE = pathlib.Path(__file__).parent / "cpython"

# The tests start programs that say `from concurrent.futures import NAME`, in isolated mode.
HOOK = """
import concurrent.futures

_own = concurrent.futures.__getattr__

def _with_isopool(name):
    if name != "IsopoolExecutor":
        return _own(name)
    import isopool

    class IsopoolExecutor(isopool.Executor):
        pass

    IsopoolExecutor.__module__ = "concurrent.futures"
    concurrent.futures.IsopoolExecutor = IsopoolExecutor
    return IsopoolExecutor

concurrent.futures.__getattr__ = _with_isopool
"""


def python_with(folder: pathlib.Path, *paths: str) -> pathlib.Path:
    """A Python of its own that finds the packages at these paths, and the hook."""
    venv.create(folder, with_pip=False, symlinks=True)
    [packages] = (folder / "lib").glob("python3*/site-packages")
    (packages / "isopool_executor_hook.py").write_text(HOOK)
    (packages / "isopool_tests.pth").write_text("\n".join([*paths, "import isopool_executor_hook"]) + "\n")
    return folder / "bin" / "python"


def test_cpythons_own_executor_tests_pass(tmp_path: pathlib.Path) -> None:
    if importlib.util.find_spec("test.test_concurrent_futures") is None:
        pytest.skip(f"this Python has no test package: apt-get install libpython3.{sys.version_info.minor}-testsuite")
    import isopool

    packages = [str(pathlib.Path(isopool.__file__).parent.parent), *site.getsitepackages(), str(HERE)]
    python = python_with(tmp_path / "python", *packages)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = subprocess.run(
        [python, "-m", "unittest", "-v", "executor_tests"],
        env=environment,
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=280,
    )
    sys.stdout.write(run.stdout)
    assert run.returncode == 0, run.stdout
    [count] = re.findall(r"^Ran (\d+) tests", run.stdout, re.MULTILINE)
    assert int(count) >= 40
