"""One step: records its effect, then does the deed that the caller requests, mostly none."""

import ctypes
import os
import signal
import struct
import time

import torch


class Step(torch.nn.Module):
    """Returns 3 * x + nonce. testing/plain_calls.cc does the same without torch."""

    def forward(
        self, nonce: int, effects: str, deed: str, amount: int, x: torch.Tensor
    ) -> torch.Tensor:
        if deed != "unlogged":
            note_effect(effects, nonce)
        if deed == "twice":
            note_effect(effects, nonce)
        act(deed, amount)
        result = x * 3 + nonce
        if deed == "keep":
            self.kept = (x, result)
        if deed == "wrong":
            result[result.numel() // 2] += 1
        return result


def note_effect(path: str, nonce: int) -> None:
    """Appends with one write, so that a death leaves a complete record or none."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        os.write(file, struct.pack("<QQ", nonce, os.getpid()))
    finally:
        os.close(file)


def act(deed: str, amount: int) -> None:
    """Dies, takes time, raises or takes memory."""
    if deed == "exit":
        os._exit(amount)
    if deed == "segv":
        ctypes.memset(amount % 8, 1, 1)
    if deed == "abort":
        os.kill(os.getpid(), signal.SIGABRT)
    if deed == "spin":
        end = time.monotonic() + amount / 1000
        while time.monotonic() < end:
            pass
    if deed == "wait":
        time.sleep(amount / 1000)
    if deed == "raise":
        raise ValueError("asked for")
    if deed == "allocate":
        taken = [torch.ones(1 << 20, dtype=torch.uint8) for _ in range(amount)]
        raise MemoryError(f"{len(taken)} MiB were there, and that was all that was asked for")
