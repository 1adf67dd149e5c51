"""A model that consists only of weights."""

import torch


class Weights(torch.nn.Module):
    """`megabytes` of weights. A call reads all of them."""

    def __init__(self, megabytes: int, megabytes_per_layer: int = 4) -> None:
        super().__init__()
        # Several layers, as a real model has; 4 bytes each.
        self.layers = torch.nn.ParameterList(
            torch.nn.Parameter(torch.randn(megabytes_per_layer * 250_000), requires_grad=False)
            for _ in range(megabytes // megabytes_per_layer)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + sum(layer.sum() for layer in self.layers)

    def write(self, layers: int) -> None:
        """Writes in place to every weight of the first `layers` layers."""
        for layer in self.layers[:layers]:
            layer.add_(1)
