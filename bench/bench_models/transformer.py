"""A model that spends its time in Python: many small operations."""

import torch


class Layer(torch.nn.Module):
    """One encoder layer, written out, so that each operation is called from Python."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.queries = torch.nn.Linear(width, width)
        self.keys = torch.nn.Linear(width, width)
        self.values = torch.nn.Linear(width, width)
        self.out = torch.nn.Linear(width, width)
        self.wide = torch.nn.Linear(width, 4 * width)
        self.narrow = torch.nn.Linear(4 * width, width)
        self.first = torch.nn.LayerNorm(width)
        self.second = torch.nn.LayerNorm(width)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0], self.heads, -1).transpose(0, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        queries = self.split(self.queries(y))
        keys = self.split(self.keys(y))
        values = self.split(self.values(y))
        scores = torch.softmax(queries @ keys.transpose(1, 2) / queries.shape[-1] ** 0.5, -1)
        x = x + self.out((scores @ values).transpose(0, 1).reshape(x.shape))
        return x + self.narrow(torch.relu(self.wide(self.second(x))))


class Transformer(torch.nn.Module):
    """Six small encoder layers over a sequence of 16 vectors of 64 numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer(64, 4) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x
