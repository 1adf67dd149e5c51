# SPDX-License-Identifier: BSD-3-Clause
"""Models that were saved without their Python source."""

import _isopool
import torch
from torch.utils import _pytree as pytree


def load_script(path: str, mapping: object, operators: str) -> torch.jit.ScriptModule:
    module = torch.jit.load(path)
    _isopool.share_weights(mapping, module)
    return module


def load_exported(path: str, mapping: object, operators: str) -> torch.nn.Module:
    # Seconds, and only these models need it.
    import torch.export

    with open(path, "rb") as file:
        module = torch.export.load(file).module()
    _isopool.share_weights(mapping, [*module.parameters(), *module.buffers()])
    return module


class CompiledModel:
    """Called as the module was that it was compiled from."""

    def __init__(self, model: object) -> None:
        self._model = model
        in_spec, out_spec = _isopool.compiled_call_spec(model)
        self._in_spec = pytree.treespec_loads(in_spec)
        self._out_spec = pytree.treespec_loads(out_spec)

    def __call__(self, *args: object, **kwargs: object) -> object:
        names = self._in_spec.child(1).context
        if kwargs.keys() != set(names):
            raise TypeError(
                f"the model was compiled for the keyword arguments {list(names)}, not {list(kwargs)}"
            )
        flat, spec = pytree.tree_flatten((args, {name: kwargs[name] for name in names}))
        if len(flat) != self._in_spec.num_leaves:
            raise TypeError(
                f"the model was compiled for arguments nested as {self._in_spec}, not as {spec}"
            )
        tensors = [each for each in flat if isinstance(each, torch.Tensor)]
        return pytree.tree_unflatten(_isopool.run_compiled(self._model, tensors), self._out_spec)

    forward = __call__


def load_compiled(path: str, mapping: object, operators: str) -> CompiledModel:
    return CompiledModel(_isopool.open_compiled(path, mapping, operators))
