# SPDX-License-Identifier: BSD-3-Clause
"""isopool as a backend of joblib, which scikit-learn and others run on.

    import isopool.joblib

    with joblib.parallel_config("isopool", n_jobs=4):
        search.fit(x, y)

The workers are kept for the next call of Parallel with the same options, until the program ends. If a worker dies, the
call of Parallel raises WorkerLost; the next one works. Short tasks are batched as with joblib's own backends.
"""

import os
import threading
from collections.abc import Callable
from typing import Any

from isopool.executor import Executor, Future
from isopool.worker import mapped_files
from joblib import register_parallel_backend  # type: ignore[import-untyped]
from joblib._parallel_backends import AutoBatchingMixin  # type: ignore[import-untyped]
from joblib.parallel import ParallelBackendBase  # type: ignore[import-untyped]


class _Kept:
    """The executor of the last call of Parallel. A former one ends with the last call that uses it."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._lock = threading.Lock()
        self._options: tuple[int, dict[str, Any]] | None = None
        self._executor: Executor | None = None

    def get(self, workers: int, options: dict[str, Any]) -> Executor:
        with self._lock:
            if self._executor is None or self._options != (workers, options):
                self._executor = Executor(workers, **options)
                self._options = (workers, options)
            return self._executor


_kept = _Kept()
# A pool is of no use in a forked process, which then makes one of its own.
os.register_at_fork(after_in_child=_kept.forget)


def _call(function: Callable[[], Any]) -> Any:
    return function()


class IsopoolBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
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

    def configure(
        self,
        n_jobs: int = 1,
        parallel: Any = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        **_: Any,
    ) -> int:
        # The other options that joblib passes are for memory-mapped files, which this backend does not need.
        self.parallel = parallel
        self._workers = self.effective_n_jobs(n_jobs)
        self._options = dict(self.backend_kwargs)
        if self.inner_max_num_threads is not None:
            self._options["threads_per_worker"] = self.inner_max_num_threads
        if initializer is not None:
            self._options.update(initializer=initializer, initargs=initargs)
        self._executor: Executor | None = None
        self._running: set[Future[Any]] = set()
        return self._workers

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], Any] | None = None) -> Future[Any]:
        if self._executor is None:
            self._executor = _kept.get(self._workers, self._options)
        # As an argument: its arrays then lie in shared memory.
        with mapped_files.by_name():
            future = self._executor.submit(_call, func)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        return out.result()

    def terminate(self) -> None:
        self._executor = None
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        # Other threads may use the executor.
        for future in tuple(self._running):
            future.cancel()
        self.terminate()


register_parallel_backend("isopool", IsopoolBackend)
