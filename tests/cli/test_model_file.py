# SPDX-License-Identifier: BSD-3-Clause
"""`isopool models FILE` says what the model in a real file takes."""

import json
import os
import pathlib
import subprocess

import pytest
import torch
from torch.package import PackageExporter

ISOPOOL = os.environ["ISOPOOL_COMMAND"]


def run(*words: str | pathlib.Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ISOPOOL, "models", *map(str, words)], capture_output=True, text=True, timeout=120)


class Doubles(torch.nn.Module):
    def forward(self, x: torch.Tensor, times: int = 1) -> torch.Tensor:
        return x * 2 * times


class DiesWhenLoaded:
    def __reduce__(self):  # type: ignore[no-untyped-def]
        return os._exit, (3,)


@pytest.fixture
def package(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "package.pt"
    with PackageExporter(path) as exporter:
        exporter.extern(["torch.**", "posix"])
        exporter.save_source_string(
            "doubles", "class Doubles:\n    def __call__(self, x):\n        print('loaded')\n        return 2 * x\n"
        )
        exporter.save_source_string("make", "import doubles\nprint('while it is loaded')\n")
        exporter.save_text(
            "model",
            "model_info.json",
            json.dumps(
                {
                    "version": "7",
                    "inputs": [{"name": "x", "dtype": "float32", "shape": [None, 3]}],
                }
            ),
        )
        exporter.save_pickle("model", "model.pkl", {"a": 1})
        exporter.save_pickle("model", "dies.pkl", DiesWhenLoaded())
    return path


def test_states_what_a_script_takes(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "script.pt"
    torch.jit.save(torch.jit.script(Doubles()), path)
    page = run(path)
    assert page.returncode == 0, page.stderr
    assert page.stderr == ""
    assert "format       torchscript" in page.stdout
    assert "inputs       x      Tensor\n             times  int\n" in page.stdout
    answer = run(path, "--json")
    model = json.loads(answer.stdout)
    assert model["format"] == "torchscript"
    assert model["bytes"] == path.stat().st_size
    assert [(each["name"], each["dtype"]) for each in model["inputs"]] == [("x", "Tensor"), ("times", "int")]


def test_states_what_the_file_of_a_package_says(package: pathlib.Path) -> None:
    answer = run(package, "--pickle", "model/model.pkl", "--json")
    assert answer.returncode == 0, answer.stderr
    model = json.loads(answer.stdout)
    assert model["name"] == "package.pt:model/model.pkl"
    assert model["version"] == "7"
    assert model["inputs"] == [{"name": "x", "dtype": "float32", "shape": [None, 3]}]
    assert "x  float32 [?, 3]" in run(package, "--pickle", "model/model.pkl").stdout


def test_a_file_that_kills_its_loader_costs_a_line(package: pathlib.Path) -> None:
    answer = run(package, "--pickle", "model/dies.pkl")
    assert answer.returncode == 1
    assert answer.stdout == ""
    assert answer.stderr.startswith("isopool: ") and "exit" in answer.stderr


def test_a_package_without_its_pickle_says_what_to_give(package: pathlib.Path) -> None:
    answer = run(package)
    assert answer.returncode == 1
    assert "loadPackage" in answer.stderr and "--pickle" in answer.stderr


def test_a_pickle_that_the_package_lacks_is_one_line(package: pathlib.Path) -> None:
    answer = run(package, "--pickle", "model/nope.pkl")
    assert answer.returncode == 1
    assert answer.stderr.count("\n") == 1, answer.stderr
    assert "has no pickle model/nope.pkl. Names like it: model/model.pkl" in answer.stderr


class Touches:
    """Writes a file when it is loaded, as any code of a pickle could."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = str(path)

    def __reduce__(self):  # type: ignore[no-untyped-def]
        return open, (self.path, "w")


@pytest.fixture
def hostile(tmp_path: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """A package whose pickle writes a file, and that file."""
    path, written = tmp_path / "hostile.pt", tmp_path / "written"
    with PackageExporter(path) as exporter:
        exporter.extern(["io", "_io"])
        exporter.save_pickle("model", "model.pkl", Touches(written))
    return path, written


def test_the_code_of_a_file_runs_in_the_strict_sandbox(
    hostile: tuple[pathlib.Path, pathlib.Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, written = hostile
    # What the operator's own programs use. The supervisor's workers would be other programs', too.
    monkeypatch.setenv("ISOPOOL_SANDBOX", "none")
    monkeypatch.setenv("ISOPOOL_SOCKET", str(path.parent / "no-supervisor"))
    answer = run(path, "--pickle", "model/model.pkl")
    assert not written.exists(), "the file's code wrote a file"
    assert answer.returncode == 1
    assert "the sandbox (strict) forbids" in answer.stderr, answer.stderr


def test_another_level_is_a_choice_and_is_said(hostile: tuple[pathlib.Path, pathlib.Path]) -> None:
    path, written = hostile
    run(path, "--pickle", "model/model.pkl", "--sandbox", "none")
    assert written.exists()


def test_the_answer_names_the_sandbox(package: pathlib.Path) -> None:
    words = [package, "--pickle", "model/model.pkl"]
    assert "loaded       in a worker with the sandbox strict\n" in run(*words).stdout
    assert json.loads(run(*words, "--json").stdout)["sandbox"] == "strict"
    loosely = run(*words, "--sandbox", "default")
    assert f"the sandbox default: the file's code could do what user {os.geteuid()} may" in loosely.stdout
    assert run(*words, "--sandbox", "lax").returncode == 2
    assert run("--sandbox", "none").returncode == 2


def test_help_says_that_the_code_runs_and_where() -> None:
    text = run("--help").stdout
    assert "Loading runs the file's code" in text and "'strict'" in text and "--sandbox LEVEL" in text


PROGRAMS = ["isopoold", "isopool-worker", "isopool-batch", "isopool-describe-model"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_program_states_its_version(name: str) -> None:
    version = subprocess.run([ISOPOOL, "--version"], capture_output=True, text=True, timeout=60).stdout.split()[-1]
    program = pathlib.Path(ISOPOOL).parents[1] / "libexec" / "isopool" / name
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == f"{name.replace('-batch', ' batch')} {version}\n"


def test_wrong_usage_ends_with_two(package: pathlib.Path, tmp_path: pathlib.Path) -> None:
    assert run(tmp_path / "none.pt").returncode == 2
    assert run(package, "--pickle", "model.pkl").returncode == 2
    assert run("--pickle", "model/model.pkl").returncode == 2
