# SPDX-License-Identifier: BSD-3-Clause
"""Archives of torch.jit.save."""

import _isopool
import torch
from isopool_worker.model_file import ModelFile


def load(file: ModelFile, options: str) -> torch.jit.ScriptModule:
    module = torch.jit.load(file.path)
    _isopool.share_weights(file.mapping, module)
    return module
