"""One module for each question of roundtrip, as small as a model can be."""

import os
import signal
import time

import torch


class Identity(torch.nn.Module):
    """Gives the input back."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class AddOne(torch.nn.Module):
    """Makes a result by an operation."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


class Clone(torch.nn.Module):
    """Makes a result that is a copy."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clone()


class Keep(torch.nn.Module):
    """Makes a result and keeps it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept = x + 1
        return self.kept


class Wait(torch.nn.Module):
    """Is running when its worker dies."""

    def forward(self) -> None:
        time.sleep(60)


class Crash(torch.nn.Module):
    """Writes into its input, which the caller sees, when it dies: seconds of CLOCK_MONOTONIC."""

    def forward(self, died: torch.Tensor) -> None:
        died[0] = time.monotonic()
        os.kill(os.getpid(), signal.SIGKILL)
