# SPDX-License-Identifier: BSD-3-Clause
"""The models that make_models.py stores."""

import torch


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2048, 2048)
        self.register_buffer("shift", torch.arange(2048, dtype=torch.float32))

    def forward(self, x, y):
        return torch.relu(self.linear(x)) * y + self.shift


class Scripted(Layers):
    def forward(self, x, y, rounds: int = 0):
        z = torch.relu(self.linear(x)) * y + self.shift
        for _ in range(rounds):
            z = z + 1
        return z

    @torch.jit.export
    def weight(self):
        return self.linear.weight

    @torch.jit.export
    def write_weight(self):
        with torch.no_grad():
            self.linear.weight.fill_(0)

    @torch.jit.export
    def scaled(self, x, factor: float):
        return {"scaled": x * factor, "sum": x.sum()}


class InPlace(torch.nn.Module):
    def forward(self, x):
        return x.add_(1)


class Several(torch.nn.Module):
    """Takes nested arguments and returns a nested result."""

    def forward(self, pair, *, scale):
        return {"sum": (pair[0] + pair[1]) * scale, "both": [pair[0], pair[1] * 2]}


class Values(torch.nn.Module):
    """Inputs and outputs with which a C++ program checks the other models."""

    def __init__(self, x, y, expected) -> None:
        super().__init__()
        self.x, self.y, self.expected = x, y, expected

    def forward(self):
        return self.x, self.y, self.expected
