# SPDX-License-Identifier: BSD-3-Clause
"""isopool as a backend of joblib, which scikit-learn and others run on.

    import isopool.joblib

    with joblib.parallel_config("isopool", n_jobs=4):
        search.fit(x, y)

The workers are kept for the next call of Parallel with the same options, until the program ends. If a worker dies, the
call of Parallel raises WorkerLost; the next one works.
"""

import os
import threading
from collections.abc import Callable
from typing import Any

from isopool.executor import Executor, Future
from joblib import register_parallel_backend  # type: ignore[import-untyped]
from joblib.parallel import ParallelBackendBase  # type: ignore[import-untyped]


class _Kept:
    """The executor of the last call of Parallel."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._options: tuple[int, dict[str, Any]] | None = None
        self._executor: Executor | None = None

    def get(self, workers: int, options: dict[str, Any]) -> Executor:
        with self._lock:
            if self._executor is None or self._options != (workers, options):
                if self._executor is not None:
                    self._executor.shutdown(wait=False)
                self._executor = Executor(workers, **options)
                self._options = (workers, options)
            return self._executor

    def stop(self, executor: Executor) -> None:
        with self._lock:
            if self._executor is executor:
                self._executor = None
        executor.stop()


_kept = _Kept()


def _call(function: Callable[[], Any]) -> Any:
    return function()


class IsopoolBackend(ParallelBackendBase):  # type: ignore[misc]
    """Options of the backend are those of Executor: parallel_config("isopool", worker_memory=2**31)."""

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
        self._workers = self.effective_n_jobs(n_jobs)
        self._options = dict(self.backend_kwargs)
        if self.inner_max_num_threads is not None:
            self._options["threads_per_worker"] = self.inner_max_num_threads
        self._executor: Executor | None = None
        return self._workers

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], Any] | None = None) -> Future[Any]:
        if self._executor is None:
            self._executor = _kept.get(self._workers, self._options)
        # As an argument: its arrays then lie in shared memory.
        future = self._executor.submit(_call, func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        return out.result()

    def terminate(self) -> None:
        self._executor = None

    def abort_everything(self, ensure_ready: bool = True) -> None:
        executor, self._executor = self._executor, None
        if executor is not None:
            _kept.stop(executor)


register_parallel_backend("isopool", IsopoolBackend)
