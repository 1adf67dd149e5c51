"""A model that needs Python 3.12 or newer."""

import torch

type Rows = torch.Tensor


class Scoring(torch.nn.Module):
    def forward(self, x: Rows) -> Rows:
        return x
