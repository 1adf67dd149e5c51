"""The model that the programs of tests/compat run."""

import torch


class Classifier(torch.nn.Module):
    """From pictures of batch x 3 x 224 x 224 to 10 logits each."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 10)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.linear(pictures.mean(dim=(2, 3)))

    def scaled(self, value: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
        return value * factor

    def fail(self, text: str) -> None:
        raise ValueError(text)
