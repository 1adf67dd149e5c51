"""A model that is nothing but weights."""

import torch


class Weights(torch.nn.Module):
    """`megabytes` of weights, of which a call reads every one."""

    def __init__(self, megabytes: int) -> None:
        super().__init__()
        # Several layers, as a real model has; 4 bytes each.
        self.layers = torch.nn.ParameterList(
            torch.nn.Parameter(torch.randn(250_000), requires_grad=False)
            for _ in range(megabytes)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + sum(layer.sum() for layer in self.layers)
