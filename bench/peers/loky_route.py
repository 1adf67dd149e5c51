# SPDX-License-Identifier: BSD-3-Clause
"""loky's executor (joblib's) with one process."""

import measuring
from loky import ProcessPoolExecutor
from operations import OPERATIONS, Data


class LokyRoute(measuring.Route):
    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(1)

    def call(self, operation: str, x: Data) -> Data:
        return self._pool.submit(OPERATIONS[operation], x).result(measuring.CALL_SECONDS)

    def close(self) -> None:
        self._pool.shutdown(kill_workers=True)


if __name__ == "__main__":
    measuring.serve(LokyRoute)
