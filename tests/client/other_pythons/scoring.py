"""A model whose package is made by one Python and opened by another."""

import collections
import dataclasses
import enum

import torch


class Scale(enum.Enum):
    SMALL = 2
    LARGE = 3


@dataclasses.dataclass
class Settings:
    scale: Scale
    names: collections.OrderedDict[str, int]


class Scoring(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.settings = Settings(Scale.LARGE, collections.OrderedDict(first=1))
        self.weight = torch.nn.Parameter(torch.arange(4.0), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        match self.settings.scale:
            case Scale.LARGE:
                return x * self.weight * self.settings.scale.value
            case other:
                raise ValueError(f"{other=}")
