# SPDX-License-Identifier: BSD-3-Clause
"""The options of a pool as keywords, for type checkers and completion. PoolOptions has what each one is."""

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

from isopool._native import Recycling

Time = float | datetime.timedelta  # a float: seconds


class RecyclingFields(TypedDict, total=False):
    """The fields of Recycling."""

    age: Time
    calls: int
    jitter_percent: int
    memory_growth: int
    patience: Time


class PoolFields(TypedDict, total=False):
    """The fields of PoolOptions but workers, which has a parameter of its own."""

    allow_other_python: bool
    cleanup_timeout: Time
    core_dumps: bool
    fork_timeout: Time
    gpus: Sequence[str]
    logger: Callable[[int, str], object] | None
    no_kill: bool
    output_arena: int
    output_arena_limit: int
    preload_libraries: Sequence[str]
    preload_modules: Sequence[str]
    program_name: str
    python: str
    python_paths: Sequence[str]
    quarantine: Time
    reconnect: Time
    recycle: Recycling
    restart_limit: int
    restart_window: Time
    sandbox: str
    sandbox_network: bool
    sandbox_read: Sequence[str]
    sandbox_write: Sequence[str]
    shared_supervisor: str
    spares: int
    stopped_timeout: Time
    supervisor_log_format: str
    supervisor_log_level: str
    supervisor_program: str
    threads_per_worker: int
    variables: Mapping[str, str]
    worker_files: int
    worker_memory: int
    worker_preload_libraries: Sequence[str]
    worker_processes: int
    worker_program: str
    worker_timeout: Time
    zygote_timeout: Time


class AllPoolFields(PoolFields, total=False):
    """The fields of PoolOptions."""

    workers: int
