# SPDX-License-Identifier: BSD-3-Clause
"""How often worker/backends/onnx_runtime.py runs a model, without a worker around it."""

import importlib.util
import pathlib
import sys
import types

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/client"))
import onnx_file as onnx  # noqa: E402


@pytest.fixture
def backend(monkeypatch):
    """The backend as a worker imports it."""
    pytest.importorskip("onnxruntime")
    native = types.ModuleType("_isopool")
    native.trim_heap = lambda: None
    package = types.ModuleType("isopool_worker")
    package.__path__ = [str(ROOT / "worker/backends")]
    monkeypatch.setitem(sys.modules, "_isopool", native)
    monkeypatch.setitem(sys.modules, "isopool_worker", package)
    name = "isopool_worker.onnx_runtime"
    spec = importlib.util.spec_from_file_location(name, ROOT / "worker/backends/onnx_runtime.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("isopool_worker.model_file", None)


class CountedSession:
    """An InferenceSession that counts its runs."""

    def __init__(self, session) -> None:
        self.session = session
        self.runs = 0

    def __getattr__(self, name):
        return getattr(self.session, name)

    def run_with_iobinding(self, binding) -> None:
        self.runs += 1
        self.session.run_with_iobinding(binding)


@pytest.fixture
def load(backend, tmp_path):
    """Makes a model of one node, with the session that counts."""

    def loaded(operator, inputs, output, dtype=torch.float32):
        path = tmp_path / "model.onnx"
        names = list(inputs)
        path.write_bytes(
            onnx.model(
                [onnx.node(operator, names, ["z"])],
                [onnx.value(name, *declared) for name, declared in inputs.items()],
                [onnx.value("z", output, dtype)],
            )
        )
        file = types.SimpleNamespace(path=str(path), name=path.name)
        model = backend.load(file, "")
        model.session = CountedSession(model.session)
        return model

    return loaded


@pytest.mark.parametrize("wrong", [torch.ones(2, 5), torch.ones(4)], ids=["size", "rank"])
def test_a_call_with_an_input_of_another_shape_runs_once(load, wrong):
    model = load("Neg", {"x": (["rows", 4], torch.float32)}, ["rows", 4])
    with pytest.raises(RuntimeError, match="for input: x"):
        model(wrong)
    assert model.session.runs == 1
    assert model(torch.ones(2, 4)).equal(-torch.ones(2, 4))


def test_a_call_whose_values_are_wrong_runs_once(load):
    inputs = {"x": (["rows"], torch.float32), "i": (["count"], torch.int64)}
    model = load("Gather", inputs, ["count"])
    with pytest.raises(RuntimeError, match="idx=7"):
        model(torch.ones(2), torch.tensor([7]))
    assert model.session.runs == 1
    # The model's shapes hold: the next call fails in its first run, too.
    with pytest.raises(RuntimeError, match="idx=7"):
        model(torch.ones(2), torch.tensor([7]))
    assert model.session.runs == 2


def test_a_model_that_declares_a_wrong_shape_runs_again_in_its_first_call_only(load):
    model = load("Transpose", {"x": (["a", "b"], torch.float32)}, ["a", "b"])
    x = torch.arange(6, dtype=torch.float32).view(2, 3)
    assert model(x).equal(x.t())
    assert model.session.runs == 2
    assert model(x).equal(x.t())
    assert model.session.runs == 3


def test_a_declared_shape_for_which_there_is_no_memory_needs_no_further_run(load):
    model = load("NonZero", {"x": (["a"], torch.float32)}, [1, 1 << 50], torch.int64)
    assert model(torch.ones(3)).equal(torch.tensor([[0, 1, 2]]))
    assert model.session.runs == 1
