# SPDX-License-Identifier: BSD-3-Clause
"""Calls for asyncio: `await model.aio(x)`, `async with pool:`."""

import asyncio
from typing import Any

from isopool import _native


async def call(model: _native.Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Makes the call without blocking the event loop. If the task is cancelled, the call ends, also in the worker."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
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
