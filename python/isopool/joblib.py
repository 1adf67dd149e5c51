# SPDX-License-Identifier: BSD-3-Clause
"""isopool as a backend of joblib, which scikit-learn and others run on.

    import isopool.joblib

    with joblib.parallel_config("isopool", n_jobs=4):
        search.fit(x, y)

joblib keeps the workers between calls of Parallel in the same parallel_config. If a worker dies, the call of Parallel
raises WorkerLost; the next one works.
"""

import os
from collections.abc import Callable
from typing import Any

from isopool.executor import Executor, Future
from joblib import register_parallel_backend
from joblib.parallel import ParallelBackendBase


def _call(function: Callable[[], Any]) -> Any:
    return function()


class IsopoolBackend(ParallelBackendBase):  # type: ignore[misc]
    """Options of the backend are those of Executor: parallel_config("isopool", worker_memory="2G")."""

    supports_retrieve_callback = True
    supports_inner_max_num_threads = True

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        processors = len(os.sched_getaffinity(0))
        return n_jobs if n_jobs > 0 else max(1, processors + 1 + n_jobs)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **_: Any) -> int:
        # The options that joblib passes here are for memory-mapped files, which this backend does not need.
        self.parallel = parallel
        workers = self.effective_n_jobs(n_jobs)
        options = dict(self.backend_kwargs)
        if self.inner_max_num_threads is not None:
            options["threads_per_worker"] = self.inner_max_num_threads
        self._make: Callable[[], Executor] = lambda: Executor(workers, **options)
        self._executor: Executor | None = None
        return workers

    def submit(self, func: Callable[[], Any], callback: Callable[[Future], Any] | None = None) -> Future:
        if self._executor is None:
            self._executor = self._make()
        # As an argument: its arrays then lie in shared memory.
        future = self._executor.submit(_call, func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future) -> Any:
        return out.result()

    def terminate(self) -> None:
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None

    def abort_everything(self, ensure_ready: bool = True) -> None:
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.stop()


register_parallel_backend("isopool", IsopoolBackend)
