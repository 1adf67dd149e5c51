"""One module for each question of roundtrip, as small as a model can be."""

import ctypes
import os
import signal
import time

import torch


class Identity(torch.nn.Module):
    """Returns the input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class AddOne(torch.nn.Module):
    """Makes a result with an operation."""

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


class Remember(torch.nn.Module):
    """Keeps its input until the next call, and returns it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = x
        return x


class Counted(torch.nn.Module):
    """Makes objects and counts how many of them live."""

    class Result:
        def __init__(self, maker: "Counted") -> None:
            self.maker = maker
            maker.living += 1

        def __del__(self) -> None:
            self.maker.living -= 1

    def __init__(self) -> None:
        super().__init__()
        self.living = 0

    def forward(self) -> "Counted.Result":
        return Counted.Result(self)


class Crash(torch.nn.Module):
    """Writes the time of its death into its input, for the caller: seconds of CLOCK_MONOTONIC."""

    def hold(self, megabytes: int) -> None:
        """Allocates private memory of the worker and touches each page."""
        self.held = torch.ones(megabytes, 250_000)

    def forward(self, died: torch.Tensor, cause: str) -> None:
        # Between reading the clock and the death no code may run for the first time: the first use
        # of an operation of torch takes half a millisecond.
        clock = ctypes.c_double.from_address(died.data_ptr())
        clock.value = time.monotonic()
        ctypes.string_at(died.data_ptr(), 1)
        process, kill = os.getpid(), os.kill
        clock.value = time.monotonic()
        if cause == "SIGSEGV":
            ctypes.string_at(0)
        kill(process, signal.SIGKILL)
