import os

import torch


class Hello(torch.nn.Module):
    """Doubles a tensor, and prints the process ID."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print(f"hello from Python in process {os.getpid()}")
        return x * self.factor
