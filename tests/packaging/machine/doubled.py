import time

import torch


class Doubled(torch.nn.Module):
    """Doubles a tensor, `seconds` later."""

    def forward(self, x: torch.Tensor, seconds: float = 0.0) -> torch.Tensor:
        time.sleep(seconds)
        return x * 2.0
