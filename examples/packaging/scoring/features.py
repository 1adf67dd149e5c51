# SPDX-License-Identifier: BSD-3-Clause
import numpy
import torch


def clipped(rows: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(numpy.clip(rows.numpy(), -1.0, 1.0))
