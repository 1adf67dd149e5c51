"""Programs written for torch::deploy and multipy run unchanged and give eager PyTorch's results."""

import os
import pathlib
import re
import subprocess
import sysconfig
import warnings

import pytest
import torch
from compat_models import Classifier
from torch.package.package_exporter import PackageExporter

PROGRAMS = pathlib.Path(os.environ["ISOPOOL_PROGRAMS"])
EXTERN_PACKAGES = {"PATH_TO_EXTERN_PYTHON_PACKAGES": sysconfig.get_path("purelib")}


@pytest.fixture(scope="module")
def model() -> Classifier:
    torch.manual_seed(7)
    return Classifier().eval()


@pytest.fixture(scope="module")
def package(model: Classifier, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    file = tmp_path_factory.mktemp("packages") / "classifier.pt"
    warnings.filterwarnings("ignore", message="TypedStorage is deprecated")
    with PackageExporter(file) as exporter:
        exporter.intern("compat_models")
        exporter.save_pickle("model", "model.pkl", model)
    return file


def run(program: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name not in EXTERN_PACKAGES}
    return subprocess.run(
        [PROGRAMS / program, *map(str, arguments)],
        env={**inherited, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )


def first_logits(model: Classifier) -> torch.Tensor:
    return model(torch.ones(1, 3, 224, 224))[0, :5]


def printed_numbers(text: str) -> torch.Tensor:
    """The numbers of a tensor as C++ prints it: numbers, then its type in brackets."""
    return torch.tensor([float(word) for word in re.findall(r"-?\d+\.\d+", text)])


def test_first_program_prints_what_eager_pytorch_answers(
    model: Classifier, package: pathlib.Path
) -> None:
    result = run("torch_deploy_first_program", package, **EXTERN_PACKAGES)
    assert result.returncode == 0, result.stderr
    assert "[ CPUFloatType{1,5} ]" in result.stdout
    torch.testing.assert_close(
        printed_numbers(result.stdout), first_logits(model), rtol=1e-3, atol=1e-4
    )


def test_many_threads_agree_and_a_session_works_step_by_step(
    model: Classifier, package: pathlib.Path
) -> None:
    result = run("torch_deploy_many_threads", package, **EXTERN_PACKAGES)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert "parameters: 2" in lines
    assert "sqrt(2) = 1.41421" in lines
    threads = result.stdout.split("8 threads:")[1]
    torch.testing.assert_close(printed_numbers(threads), first_logits(model), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("program", ["torch_deploy_first_program", "torch_deploy_many_threads"])
def test_a_file_that_is_no_package_is_a_c10_error_of_the_caller(
    program: str, tmp_path: pathlib.Path
) -> None:
    garbage = tmp_path / "garbage.pt"
    garbage.write_bytes(b"no zip archive")
    result = run(program, garbage, **EXTERN_PACKAGES)
    assert result.returncode == 1
    assert re.search("can't be (loaded|opened): .*garbage.pt.* zip archive", result.stderr), result.stderr


def test_other_spellings_of_the_documents_work(package: pathlib.Path) -> None:
    result = run("compat_spellings_test", COMPAT_PACKAGE=str(package), **EXTERN_PACKAGES)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"\[  PASSED  \] [1-9]\d* tests", result.stdout)
    assert "Hello world!" in result.stdout.splitlines(), "a worker's stdout is the program's"
