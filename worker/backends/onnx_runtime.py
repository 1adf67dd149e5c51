# SPDX-License-Identifier: BSD-3-Clause
"""ONNX models, run by ONNX Runtime on the CPU.

Its sessions may have threads, so they are made in the worker and never before the fork. A worker imports
onnxruntime with its first ONNX model.
"""

import contextlib
import os
import sys
from types import ModuleType

import _isopool
import torch
from isopool_worker.model_file import ModelFile

# ONNX Runtime's names of element types: ONNX's numbers (TensorProto.DataType) of them, and torch's types.
_TYPES = {
    "tensor(float)": (1, torch.float32),
    "tensor(uint8)": (2, torch.uint8),
    "tensor(int8)": (3, torch.int8),
    "tensor(uint16)": (4, torch.uint16),
    "tensor(int16)": (5, torch.int16),
    "tensor(int32)": (6, torch.int32),
    "tensor(int64)": (7, torch.int64),
    "tensor(bool)": (9, torch.bool),
    "tensor(float16)": (10, torch.float16),
    "tensor(double)": (11, torch.float64),
    "tensor(uint32)": (12, torch.uint32),
    "tensor(uint64)": (13, torch.uint64),
    "tensor(bfloat16)": (16, torch.bfloat16),
    "tensor(float8e4m3fn)": (17, torch.float8_e4m3fn),
    "tensor(float8e5m2)": (19, torch.float8_e5m2),
}
# In ONNX Runtime's error if an output does not have the shape of the memory that is bound to it: up to 1.26, and since
# 1.27. The test of a model with wrong shapes fails if a newer version words the error in another way.
_OTHER_SHAPE = ("OrtValue shape verification failed", "but the computed output shape for this run is")
# What stands for the data of an empty tensor, which has none.
_NOTHING = torch.empty(1)


def _description(value) -> tuple[str, str, list[int]]:  # type: ignore[no-untyped-def]
    shape = [size if isinstance(size, int) else -1 for size in value.shape]
    return value.name, str(_TYPES[value.type][1]).removeprefix("torch."), shape


_Tensors = dict[str, torch.Tensor]
_Outputs = torch.Tensor | tuple[torch.Tensor, ...]


class OnnxModel:
    """Takes tensors in the order of the graph's inputs, or by their names. Gives the graph's output, a tuple
    if there are several.
    """

    def __init__(self, session) -> None:  # type: ignore[no-untyped-def]
        self.session = session
        self._required = {each.name: each for each in session.get_inputs()}
        self._inputs = self._required | {each.name: each for each in session.get_overridable_initializers()}
        self._outputs = {each.name: each for each in session.get_outputs()}
        for each in (*self._inputs.values(), *self._outputs.values()):
            if each.type not in _TYPES:
                raise TypeError(
                    f"the model's {each.name} is a {each.type}, and only tensors of numbers cross to a program"
                )
        self._shapes_hold = True

    def __call__(self, *args: torch.Tensor, **kwargs: torch.Tensor) -> _Outputs:
        inputs = self._by_name(args, kwargs)
        results: _Tensors = {}
        if self._shapes_hold:
            # Without memory of the declared shapes ONNX Runtime allocates the outputs.
            with contextlib.suppress(RuntimeError):
                results = self._results(inputs)
        try:
            return self._run(inputs, results)
        except Exception as error:
            # Any other error would come again: a call that fails runs once.
            if not results or not any(words in str(error) for words in _OTHER_SHAPE):
                raise
        self._shapes_hold = False
        return self._run(inputs, {})

    forward = __call__

    def isopool_values(self) -> dict[str, list]:  # type: ignore[type-arg]
        """See model_description."""
        return {
            "inputs": [_description(each) for each in self._required.values()],
            "outputs": [_description(each) for each in self._outputs.values()],
        }

    def _by_name(self, args: tuple, kwargs: dict) -> _Tensors:  # type: ignore[type-arg]
        if len(args) > len(self._required):
            raise TypeError(f"the model takes the inputs {list(self._required)}, not {len(args)} of them")
        given = dict(zip(self._required, args))
        for name, value in kwargs.items():
            if name in given or name not in self._inputs:
                problem = "is given twice" if name in given else "does not exist"
                raise TypeError(f"the model's input {name!r} {problem}. Its inputs: {list(self._inputs)}")
            given[name] = value
        missing = [name for name in self._required if name not in given]
        if missing:
            raise TypeError(f"the model needs the inputs {missing}, too. Its inputs: {list(self._inputs)}")
        for name, value in given.items():
            kind = self._inputs[name].type
            if not isinstance(value, torch.Tensor) or value.dtype is not _TYPES[kind][1]:
                what = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
                raise TypeError(f"the model's input {name!r} is a {kind}, and {what} was given")
            given[name] = value.cpu().contiguous()
        return given

    def _results(self, inputs: _Tensors) -> _Tensors:
        """Memory for each output whose shape follows from those of the inputs. It is torch's, which is shared
        memory during a call."""
        sizes = {}
        for name, tensor in inputs.items():
            named = zip(self._inputs[name].shape, tensor.shape)
            sizes.update((declared, size) for declared, size in named if isinstance(declared, str))
        results = {}
        for name, output in self._outputs.items():
            # A shape of no dimensions is one that is not known, or a number, which is small.
            shape = [size if isinstance(size, int) else sizes.get(size) for size in output.shape]
            if shape and all(size is not None for size in shape):
                results[name] = torch.empty(shape, dtype=_TYPES[output.type][1])
        return results

    def _run(self, inputs: _Tensors, results: _Tensors) -> _Outputs:
        binding = self.session.io_binding()
        for name, tensor in inputs.items():
            binding.bind_input(*_place(name, self._inputs[name], tensor))
        for name, output in self._outputs.items():
            if name in results:
                binding.bind_output(*_place(name, output, results[name]))
            else:
                binding.bind_output(name)
        self.session.run_with_iobinding(binding)
        # By number: to iterate over them ends with a C++ exception, which costs as much as a small model.
        values = binding.get_outputs_as_ortvaluevector()
        outputs = []
        for i, (name, output) in enumerate(self._outputs.items()):
            outputs.append(self._tensor(values[i], output, results.get(name), inputs))
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    @staticmethod
    def _tensor(value, output, result, inputs) -> torch.Tensor:  # type: ignore[no-untyped-def]
        place = value.data_ptr()
        if result is not None and place == _address(result):
            return result
        tensor = torch.from_dlpack(value).view(_TYPES[output.type][1])
        # A graph may give an input or a constant as it is, in the caller's or the session's memory.
        if result is not None:
            return result.copy_(tensor) if result.shape == tensor.shape else tensor.clone()
        is_given = any(place == _address(each) for each in inputs.values())
        return tensor.clone() if is_given or tensor.dim() == 0 else tensor


def _address(tensor: torch.Tensor) -> int:
    return tensor.data_ptr() or _NOTHING.data_ptr()


def _place(name: str, declared, tensor: torch.Tensor) -> tuple:  # type: ignore[no-untyped-def, type-arg]
    """The arguments of a binding."""
    return name, "cpu", 0, _TYPES[declared.type][0], list(tensor.shape), _address(tensor)


def load(file: ModelFile, options: str) -> OnnxModel:
    onnxruntime = _import(file.name)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = torch.get_num_threads()
    settings.inter_op_num_threads = 1
    # What goes wrong is raised.
    settings.log_severity_level = 4
    try:
        providers = ["CPUExecutionProvider"]
        model = OnnxModel(onnxruntime.InferenceSession(file.path, settings, providers=providers))
    except Exception as error:
        text = str(error).replace(file.path, file.name)
        loader = f"ONNX Runtime {onnxruntime.__version__}"
        raise RuntimeError(f"{file.name} can't be loaded by {loader}: {text}") from None
    _isopool.trim_heap()
    return model


def _import(model: str) -> ModuleType:
    # It would report to its maker, from a thread of its own. Who wants that sets 0 for the workers.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    install = f"{sys.executable} -m pip install"
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError(
            f"{model} is an ONNX model, and the workers' Python has no onnxruntime ({error}). "
            f"Install it: {install} onnxruntime"
        ) from None
    if not hasattr(onnxruntime.OrtValue, "__dlpack__"):
        raise ImportError(
            f"{model} is an ONNX model, and the workers' onnxruntime {onnxruntime.__version__} is "
            f"too old. Install a newer one: {install} 'onnxruntime>=1.26'"
        )
    return onnxruntime
