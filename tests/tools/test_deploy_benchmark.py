"""deploy_benchmark takes upstream's arguments and prints upstream's columns."""

import csv
import io
import os
import pathlib
import subprocess
import sys
import warnings

import pytest
import torch
from benchmark_models import Adder
from torch.package.package_exporter import PackageExporter

PROGRAM = pathlib.Path(os.environ["ISOPOOL_PROGRAMS"]) / "deploy_benchmark"
TOOLS = pathlib.Path(__file__).parents[2] / "tools"
COLUMNS = [
    "benchmark", "strategy", "n_threads", "work_items_completed", "work_items_per_second",
    "p25_latency", "p50_latency", "p95_latency", "device",
]  # fmt: skip
INPUTS = (torch.ones(3), 2.0)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    file = tmp_path_factory.mktemp("packages") / "adder"
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    warnings.filterwarnings("ignore", message="TypedStorage is deprecated")
    with PackageExporter(file) as exporter:
        exporter.intern("benchmark_models")
        exporter.save_pickle("model", "model.pkl", Adder())
        exporter.save_pickle("model", "example.pkl", INPUTS)
    torch.jit.script(Adder()).save(f"{file}_jit")
    return file


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )


def rows(text: str) -> list[dict[str, str]]:
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    assert reader.fieldnames == COLUMNS
    return list(reader)


@pytest.mark.parametrize("flags", [(), ("--shared-memory",)])
def test_each_strategy_is_measured_for_each_number_of_threads(
    package: pathlib.Path, flags: tuple[str, ...]
) -> None:
    result = run(3, "none", "jit", package, "--seconds", "0.1", *flags)
    assert result.returncode == 0, result.stderr
    found = rows(result.stdout)
    assert [(row["n_threads"], row["strategy"]) for row in found] == [
        (n, strategy) for n in ("1", "2") for strategy in ("one_python", "multi_python", "jit")
    ]
    for row in found:
        assert row["benchmark"] == str(package)
        assert row["device"] == "cpu"
        calls = int(row["work_items_completed"])
        assert calls >= int(row["n_threads"])
        # A run takes at least 0.1 seconds, including the start and end of the threads.
        assert 0 < float(row["work_items_per_second"]) <= calls / 0.1
        latencies = [float(row[f"p{percent}_latency"]) for percent in (25, 50, 95)]
        assert 0 < latencies[0] <= latencies[1] <= latencies[2] < 60


def test_a_package_without_torchscript_has_no_jit_rows(
    package: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    alone = tmp_path / "alone"
    alone.write_bytes(package.read_bytes())
    result = run(1, "none", "jit", alone, "--seconds", "0.01")
    assert [row["strategy"] for row in rows(result.stdout)] == ["one_python", "multi_python"]
    assert "alone_jit" in result.stderr


def test_an_error_of_the_model_ends_the_benchmark_with_its_text(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "failing"
    with PackageExporter(file) as exporter:
        exporter.intern("benchmark_models")
        exporter.save_pickle("model", "model.pkl", Adder())
        exporter.save_pickle("model", "example.pkl", (1.0, 2.0, 3.0))
    result = run(2, "none", "none", file, "--seconds", "0.01")
    assert result.returncode == 1
    assert "TypeError" in result.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_cuda_without_a_device_is_refused_before_anything_is_measured(
    package: pathlib.Path,
) -> None:
    result = run(1, "cuda", "none", package)
    assert result.returncode == 1
    assert result.stdout == ""
    assert "no CUDA device" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "max_threads"),
        ((0, "none", "none", __file__), "max_threads"),
        ((1, "gpu", "none", __file__), "gpu"),
        ((1, "none", "yes", __file__), "yes"),
        ((1, "cuda", "jit", __file__), "CPU only"),
        ((1, "none", "none", "/no/such/package"), "/no/such/package"),
    ],
)
def test_wrong_arguments_are_named(arguments: tuple[object, ...], complaint: str) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert complaint in result.stderr


def test_help_teaches() -> None:
    text = run("--help").stdout
    for word in ("max_threads", "one_python", "multi_python", "example.pkl", "_jit", "--seconds"):
        assert word in text


def test_a_model_on_a_device_takes_and_gives_cpu_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(TOOLS)
    monkeypatch.setattr(torch.version, "interp", 3, raising=False)
    monkeypatch.delitem(sys.modules, "device_model", raising=False)
    from device_model import DeviceModel, moved

    assert DeviceModel(Adder(), kind="cpu")(*INPUTS).tolist() == [3.0, 3.0, 3.0]
    meta = torch.device("meta")
    nested = moved({"a": (torch.ones(1), [torch.ones(2)]), "b": 1}, meta)
    assert nested["a"][0].device == nested["a"][1][0].device == meta
    assert nested["b"] == 1
