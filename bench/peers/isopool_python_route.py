# SPDX-License-Identifier: BSD-3-Clause
"""isopool's Python package: a session on a pool of one worker."""

import measuring
import numpy
import torch
from isopool import InterpreterManager
from operations import OPERATIONS, Data


class IsopoolPythonRoute(measuring.Route):
    def __init__(self) -> None:
        torch.set_num_threads(1)
        self._pool = InterpreterManager(1)
        self._session = self._pool.acquire_one()
        self._operations = {
            name: self._session.global_("operations", name) for name in OPERATIONS
        }

    def input(self, source: numpy.ndarray) -> torch.Tensor:
        return torch.from_numpy(source)

    def call(self, operation: str, x: Data) -> Data:
        return self._operations[operation](x).deref()

    def array(self, answer: torch.Tensor) -> numpy.ndarray:
        return answer.numpy()

    def close(self) -> None:
        self._operations.clear()
        self._session.__exit__(None, None, None)


if __name__ == "__main__":
    measuring.serve(IsopoolPythonRoute)
