# SPDX-License-Identifier: BSD-3-Clause
"""Archives of torch.export.save."""

import _isopool
import torch
from isopool_worker.model_file import ModelFile


def load(file: ModelFile, options: str) -> torch.nn.Module:
    # Seconds, and only these models need it.
    import torch.export

    with open(file.path, "rb") as archive:
        module = torch.export.load(archive).module()
    _isopool.share_weights(file.mapping, [*module.parameters(), *module.buffers()])
    return module
