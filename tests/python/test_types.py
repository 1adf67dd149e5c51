# SPDX-License-Identifier: BSD-3-Clause
"""The types that isopool states are those that it has."""

import pathlib
import subprocess
import sys

import isopool
from isopool import options

# pybind11's metaclass, and classes that only the module makes.
NOT_STATED = """
isopool\\._native\\.[A-Z]\\w+
isopool\\._native\\.(?!Pool\\.|PoolOptions|Recycling|InterpreterManager)\\w+\\.__init__
"""

USES = """
from collections.abc import Iterator

import isopool
import torch


def call(pool: isopool.Pool) -> int:
    model = pool.load("model.pt", pickle=("model", "model.pkl"))
    numbered: Iterator[tuple[int, object]] = model.map([1, 2], ordered=False)
    with model.session() as session:
        session.call_method("reset")
    return sum(number for number, _ in numbered) + pool.statistics().workers_replaced


def run(executor: isopool.Executor, x: torch.Tensor) -> float:
    return executor.submit(float, x).result()


async def wait(model: isopool.Model) -> object:
    return await model.aio(1, mask=2)
"""
WRONG_OPTION = USES + """

isopool.Executor(3, no_such_option=3)
isopool.Pool(3, spares="many")
"""
WRONG = USES.replace("pool.statistics().workers_replaced", "pool.statistics().no_such_figure")


def mypy(folder: pathlib.Path, *arguments: str) -> tuple[int, str]:
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", folder / "cache", *arguments],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    return run.returncode, run.stdout


def test_the_stubs_of_the_native_module_agree_with_it(tmp_path: pathlib.Path) -> None:
    (tmp_path / "not_stated").write_text(NOT_STATED)
    run = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "isopool._native", "--allowlist", tmp_path / "not_stated"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout


def test_the_options_that_are_stated_are_those_of_the_native_module() -> None:
    for kind, stated in (
        (isopool.PoolOptions, options.AllPoolFields),
        (isopool.Recycling, options.RecyclingFields),
    ):
        assert {name for name in dir(kind) if not name.startswith("_")} == set(stated.__annotations__)


def test_the_package_and_programs_that_use_it_are_strictly_typed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "uses.py").write_text(USES)
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "wrong_option.py").write_text(WRONG_OPTION)
    code, output = mypy(tmp_path, "-p", "isopool")
    assert code == 0, output
    code, output = mypy(tmp_path, "uses.py")
    assert code == 0, output
    code, output = mypy(tmp_path, "wrong.py")
    assert code == 1 and "no_such_figure" in output, output
    code, output = mypy(tmp_path, "wrong_option.py")
    assert code == 1 and "no_such_option" in output and 'Argument "spares"' in output, output
    assert pathlib.Path(isopool.__file__).with_name("py.typed").exists()
