import torch


class Digits(torch.nn.Module):
    """A small convolutional classifier with untrained weights: only its numbers are compared."""

    def __init__(self) -> None:
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(1, 16, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(16, 32, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
        )
        self.classify = torch.nn.Linear(32 * 7 * 7, 10)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(self.classify(self.features(pictures).flatten(1)), dim=1)
