# SPDX-License-Identifier: BSD-3-Clause
"""isopool's models from Python: a pool of one worker, inputs in its memory."""

import isopool
import measuring
import numpy
import torch
from operations import OPERATIONS, Data


class IsopoolPoolRoute(measuring.Route):
    def __init__(self) -> None:
        torch.set_num_threads(1)
        self._pool = isopool.Pool(1)
        self._models = {name: self._pool.load(each) for name, each in OPERATIONS.items()}
        self._input = torch.empty(0)

    def source(self, floats: int) -> numpy.ndarray:
        self._input = self._pool.empty((floats,), torch.float32).fill_(1.5)
        return self._input.numpy()

    def input(self, source: numpy.ndarray) -> torch.Tensor:
        return self._input

    def call(self, operation: str, x: Data) -> Data:
        return self._models[operation](x)

    def array(self, answer: torch.Tensor) -> numpy.ndarray:
        return answer.numpy()

    def copied_bytes(self) -> int:
        return sum(self._pool.statistics().copied.values())

    def close(self) -> None:
        self._pool.close()


if __name__ == "__main__":
    measuring.serve(IsopoolPoolRoute)
