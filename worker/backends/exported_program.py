# SPDX-License-Identifier: BSD-3-Clause
"""Archives of torch.export.save."""

import _isopool
import torch
from isopool_worker import model_description
from isopool_worker.model_file import ModelFile


def load(file: ModelFile, options: str) -> torch.nn.Module:
    # Seconds, and only these models need it.
    import torch.export

    with open(file.path, "rb") as archive:
        program = torch.export.load(archive)
    module = program.module()
    _note_values(program, module)
    _isopool.share_weights(file.mapping, [*module.parameters(), *module.buffers()])
    return module


def _note_values(program, module: torch.nn.Module) -> None:  # type: ignore[no-untyped-def]
    # Constants among the outputs have no node.
    examples = {node.name: node.meta.get("val") for node in program.graph.nodes}

    def described(names: tuple) -> list:  # type: ignore[type-arg]
        return [
            model_description.of_tensor(name, examples[name]) for name in names if isinstance(name, str) and name in examples
        ]

    signature = program.graph_signature
    model_description.note(module, described(signature.user_inputs), described(signature.user_outputs))
