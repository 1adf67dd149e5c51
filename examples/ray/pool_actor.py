"""A Ray actor that holds a pool: the tasks of a node call a model in crash-isolated workers.

Arrays in Ray's object store are read-only, and other processes may hold them, so they enter the pool's memory by one
copy. Calls copy nothing after that.

    python examples/ray/pool_actor.py
"""

import argparse
import os
import signal

import isopool
import numpy as np
import ray
import torch


class Scorer(torch.nn.Module):
    """A model whose native part may crash."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(columns, 1)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        if torch.isnan(rows).any():
            os.kill(os.getpid(), signal.SIGSEGV)
        result: torch.Tensor = self.layer(rows)
        return result


@ray.remote
class PoolActor:
    """One for each node. The calls of its tasks run on the workers of its pool, as many at once as there are."""

    def __init__(self, workers: int, columns: int) -> None:
        self._pool = isopool.Pool(workers)
        self._model = self._pool.load(Scorer(columns))
        self._copied_by_load = self._copied()

    def _copied(self) -> int:
        return sum(self._pool.statistics().copied.values())

    async def score(self, rows: np.ndarray) -> np.ndarray:
        """rows: float32 [rows, columns]. Raises isopool.WorkerLost if the model's process dies."""
        own = self._pool.empty(rows.shape, torch.float32)
        np.copyto(own.numpy(), rows)
        result: np.ndarray = (await self._model.aio(own)).numpy()
        return result

    async def copied_by_calls(self) -> int:
        return self._copied() - self._copied_by_load


def main() -> None:
    parser = argparse.ArgumentParser(description="Calls a model through a Ray actor, and has one call crash.")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="worker processes (default: %(default)s)")
    parser.add_argument("--calls", type=int, default=50, metavar="N", help="calls (default: %(default)s)")
    options = parser.parse_args()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    actor = PoolActor.options(max_concurrency=32).remote(options.workers, 250)  # type: ignore[attr-defined]
    rows = ray.put(np.ones((10_000, 250), np.float32))  # 10 MB, once in the node's memory
    broken = ray.put(np.full((1, 250), np.nan, np.float32))
    calls = [actor.score.remote(broken if number == options.calls // 2 else rows) for number in range(options.calls)]
    answered = lost = 0
    for call in calls:
        try:
            assert ray.get(call).shape == (10_000, 1)
            answered += 1
        except isopool.WorkerLost as error:
            lost += 1
            print(f"lost: signal {error.signal}")
    print(f"{answered} answered, {lost} lost, {ray.get(actor.copied_by_calls.remote())} bytes copied by calls")
    ray.shutdown()


if __name__ == "__main__":
    main()
