# SPDX-License-Identifier: BSD-3-Clause
"""A model on a device that is called with CPU tensors. deploy_benchmark runs it for `cuda`."""

import contextlib
from typing import Any

import torch


def device_count() -> int:
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def moved(value: Any, device: torch.device) -> Any:
    """The value with its tensors, also those in tuples, lists and dicts, on `device`."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, tuple):
        return tuple(moved(each, device) for each in value)
    if isinstance(value, list):
        return [moved(each, device) for each in value]
    if isinstance(value, dict):
        return {key: moved(each, device) for key, each in value.items()}
    return value


class DeviceModel:
    """A model on the device with its worker's number, modulo the devices, with its own stream."""

    def __init__(self, model: Any, kind: str = "cuda") -> None:
        count = device_count() if kind == "cuda" else 1
        self.device = torch.device(kind, torch.version.interp % count)
        self.model = model.to(self.device)
        self.stream = torch.cuda.Stream(self.device) if kind == "cuda" else None

    def __call__(self, *inputs: Any) -> Any:
        with torch.cuda.stream(self.stream) if self.stream else contextlib.nullcontext():
            # Copying the result to the CPU waits for the stream.
            return moved(self.model(*moved(inputs, self.device)), torch.device("cpu"))
