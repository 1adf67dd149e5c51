# SPDX-License-Identifier: BSD-3-Clause
"""Models that AOTInductor compiled to a shared library."""

import _isopool
import torch
from isopool_worker.model_file import ModelFile
from torch.utils import _pytree as pytree


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

    def isopool_values(self) -> dict[str, list]:  # type: ignore[type-arg]
        """See model_description: the names only, and only of whole arguments."""
        positional = range(len(self._in_spec.child(0).children()))
        names = [*map(str, positional), *self._in_spec.child(1).context]
        return {"inputs": [(name, "", None) for name in names], "outputs": []}


def load(file: ModelFile, options: str) -> CompiledModel:
    """`options`: the description of the operators that the library calls through torch's dispatcher, JSON,
    empty if there are none."""
    return CompiledModel(_isopool.open_compiled(file.path, file.mapping, options))
