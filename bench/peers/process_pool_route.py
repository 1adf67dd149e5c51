# SPDX-License-Identifier: BSD-3-Clause
"""concurrent.futures.ProcessPoolExecutor with one process."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import measuring
from operations import OPERATIONS, Data


class ProcessPoolRoute(measuring.Route):
    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))

    def call(self, operation: str, x: Data) -> Data:
        return self._pool.submit(OPERATIONS[operation], x).result(measuring.CALL_SECONDS)

    def close(self) -> None:
        self._pool.shutdown()


if __name__ == "__main__":
    measuring.serve(ProcessPoolRoute)
