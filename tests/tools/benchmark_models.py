"""The model that the tests of deploy_benchmark package."""

import torch


class Adder(torch.nn.Module):
    def forward(self, tensor: torch.Tensor, number: float) -> torch.Tensor:
        return tensor + number
