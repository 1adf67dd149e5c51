# SPDX-License-Identifier: BSD-3-Clause
"""Calls for asyncio: `await model.aio(x)`, `async with pool:`."""

import asyncio
import weakref
from typing import Any

from isopool import _native

# Calls of one model that one event loop has begun, for each worker. More would wait for a worker, too, but with their
# arguments in shared memory.
MOST_BEGUN = 8

_limits: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[int, int], asyncio.Semaphore]]
_limits = weakref.WeakKeyDictionary()


def _limit(model: _native.Model) -> asyncio.Semaphore:
    """Of all Models that were made of the same one, as by with_options()."""
    of_loop = _limits.setdefault(asyncio.get_running_loop(), {})
    key = model._origin, model.workers
    if key not in of_loop:
        of_loop[key] = asyncio.Semaphore(MOST_BEGUN * model.workers)
    return of_loop[key]


async def call(model: _native.Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Makes the call without blocking the event loop. If the task is cancelled, the call ends, also in the worker."""
    async with _limit(model):
        return await _call(model, args, kwargs)


async def _call(model: _native.Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        elif isinstance(error, StopIteration):
            # A coroutine can't raise it: asyncio refuses it as the outcome of a future.
            raised = RuntimeError("the model raised StopIteration")
            raised.__cause__ = error
            future.set_exception(raised)
        else:
            future.set_exception(error)

    def ended(value: Any, error: BaseException | None) -> None:
        try:
            loop.call_soon_threadsafe(settle, value, error)
        except RuntimeError:
            pass  # the loop was closed: nothing awaits the outcome

    pending = model.call_async(args, kwargs, ended)
    try:
        return await future
    except asyncio.CancelledError:
        pending.stop()
        raise


async def enter(pool: _native.Pool) -> _native.Pool:
    return pool


async def close(pool: _native.Pool) -> None:
    """Ends the pool on another thread: calls in flight are waited for."""
    await asyncio.get_running_loop().run_in_executor(None, pool.close)
