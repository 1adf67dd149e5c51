# SPDX-License-Identifier: BSD-3-Clause
"""A process of torch.multiprocessing with a queue for each direction."""

import measuring
import numpy
import torch
import torch.multiprocessing
from operations import OPERATIONS, Data


def answer_requests(requests: Data, answers: Data) -> None:
    torch.set_num_threads(1)
    while (request := requests.get()) is not None:
        operation, x = request
        answers.put(OPERATIONS[operation](x))


class TorchQueuesRoute(measuring.Route):
    def __init__(self) -> None:
        torch.set_num_threads(1)
        context = torch.multiprocessing.get_context("spawn")
        self._requests, self._answers = context.Queue(), context.Queue()
        self._worker = context.Process(
            target=answer_requests, args=(self._requests, self._answers), daemon=True
        )
        self._worker.start()

    def input(self, source: numpy.ndarray) -> torch.Tensor:
        # A new tensor for each call: put() moves its storage into shared memory.
        return torch.from_numpy(source).clone()

    def call(self, operation: str, x: Data) -> Data:
        self._requests.put((operation, x))
        return self._answers.get(timeout=measuring.CALL_SECONDS)

    def array(self, answer: torch.Tensor) -> numpy.ndarray:
        return answer.numpy()

    def close(self) -> None:
        self._requests.put(None)
        self._worker.join(10)
        if self._worker.is_alive():
            self._worker.kill()


if __name__ == "__main__":
    measuring.serve(TorchQueuesRoute)
