# SPDX-License-Identifier: BSD-3-Clause
"""A concurrent.futures.Executor on the workers of a Pool."""

import _signal  # type: ignore[import-not-found]
import collections
import concurrent.futures
import itertools
import logging
import multiprocessing.process
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, Self, TypeVar, Unpack

import torch

from isopool import _native, errors
from isopool.functions import PickledFunction, PickledFunctions, program_main
from isopool.options import PoolFields
from isopool.program import own_modules, search_order
from isopool.worker import payload, tasks
from isopool.worker.log_settings import program_settings

_P = ParamSpec("_P")
_T = TypeVar("_T")


# With these handlers of signals, Ctrl-C alone can end a wait.
_HANDLERS_WITHOUT_ERRORS = frozenset({None, int(signal.SIG_DFL), int(signal.SIG_IGN), signal.default_int_handler})
_SIGNALS = tuple(sorted({int(each) for each in signal.valid_signals()} - {signal.SIGKILL, signal.SIGSTOP}))


def _handlers_may_raise() -> bool:
    """Whether a signal's handler may end a wait of this thread by an exception other than a KeyboardInterrupt."""
    # signal.getsignal() makes an enum's member of each answer.
    return threading.current_thread() is threading.main_thread() and not _HANDLERS_WITHOUT_ERRORS.issuperset(
        map(_signal.getsignal, _SIGNALS)
    )


class Future(concurrent.futures.Future[_T]):
    """The Future of one call. Also a call that runs can be cancelled.

    Thread-safe. If its worker dies, it raises WorkerLost; other futures are not affected.
    """

    def __init__(self) -> None:
        super().__init__()
        self._call: _native.PendingCall | None = None

    def cancel(self) -> bool:
        """Cancels the call. If it runs, its worker is killed and replaced. False if the call has ended."""
        return self._end(stop=True)

    def running(self) -> bool:
        """True while the call is made."""
        return not self.done() and self._call is not None and not self._call.queued()

    def result(self, timeout: float | None = None) -> _T:
        """As Future.result(). A KeyboardInterrupt during the wait cancels the call."""
        if timeout is None:
            self._run_inline()
        try:
            return super().result(timeout)
        except KeyboardInterrupt:
            self.cancel()
            raise

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As Future.exception(). A KeyboardInterrupt during the wait cancels the call."""
        if timeout is None:
            self._run_inline()
        try:
            return super().exception(timeout)
        except KeyboardInterrupt:
            self.cancel()
            raise

    def _run_inline(self) -> None:
        # This thread would only wait: it saves the wake-up of one that makes the call, and its own. Not if callbacks
        # would run here, before the result is returned. Nor if a signal's handler may raise: the call ends with the
        # thread's wait then.
        callbacks = self._done_callbacks  # type: ignore[attr-defined]
        pending = self._call is not None and self._state == concurrent.futures._base.PENDING
        if pending and not callbacks and not _handlers_may_raise():
            self._call.run_inline()  # type: ignore[union-attr]

    def _end(self, stop: bool) -> bool:
        """Cancels the call: also if it runs, or only if no worker was sought for it yet."""
        call = self._call
        if call is None or self.done():
            return self.cancelled()
        if not (call.stop() if stop else call.queued() and call.cancel()):
            return self.cancelled()
        return self._was_cancelled()

    def _was_cancelled(self) -> bool:
        # The base class does not know whether the call runs: for it, it is pending until it has ended.
        if not super().cancel():
            return False
        with self._condition:
            if self._state == concurrent.futures._base.CANCELLED:
                self.set_running_or_notify_cancel()  # tells those that wait() for it
        return True


class _Task:
    """A call on its way: what is sent, and the Future that gets its outcome."""

    def __init__(
        self, future: Future[Any], function: PickledFunction, name: str, method: _native.Model, arguments: payload.Parts
    ) -> None:
        self.future = future
        self.function = function
        self.name = name
        self.method = method
        self.arguments = arguments


class _Calls:
    """The calls of an Executor. Lives until the last one has ended, also if the Executor does not."""

    def __init__(self, pool: _native.Pool, owns_pool: bool, most_tasks: int, initializer: payload.Parts) -> None:
        self.broken: str | None = None
        # The garbage collector may run an object's __del__() here, which submits or cancels calls.
        self._lock = threading.RLock()
        self._idle = threading.Condition(self._lock)
        self._closing = False
        self._waiters = 0  # threads in close() that end the pool
        self._functions = PickledFunctions()
        self._pool: _native.Pool | None = pool
        self._owns_pool = owns_pool
        self._limits_tasks = most_tasks > 0  # new workers come all the time
        self._workers = len(pool)
        self._process = os.getpid()
        self._open: dict[_Task, None] = {}  # those whose futures are not settled, the oldest first
        # How many calls took a function along, up to what is enough.
        self._sent: tasks.RecentFunctions[int] = tasks.RecentFunctions()
        authkey = bytes(multiprocessing.process.current_process().authkey).hex()
        program = (sys.argv, search_order(), own_modules())
        runner = pool._create("tasks", "TaskRunner", (*program, most_tasks, authkey, *initializer))
        self.run = runner.method("run")
        self.run_chunk = runner.method("run_chunk")
        _alive.add(self)

    def check(self) -> None:
        """Raises what submit() raises when no call can be accepted."""
        if os.getpid() != self._process:
            raise errors.Error("this process was forked after the Executor was made: make one of its own in the child")
        if self.broken is not None:
            raise errors.InitializerFailed(self.broken)
        if _exiting:
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")
        if self._closing:
            raise RuntimeError("cannot schedule new futures after shutdown")

    # Without the lock: the pickling runs code of the program, which may wait for a call or submit one.
    def pickled(self, function: Callable[..., Any]) -> PickledFunction:
        return self._functions.pickled(function)

    def add(self, task: _Task) -> None:
        function = task.function
        with self._lock:
            self.check()
            self._open[task] = None
            # A function goes along until each worker is likely to have it; a worker without it asks for it, and the
            # call waits behind those that were submitted meanwhile.
            sent = self._sent.use(function.key) or 0
            known = sent >= 2 * self._workers and not self._limits_tasks
            if not known:
                self._sent.keep(function.key, sent + 1, function.tensor.numel())
        self._begin(task, None if known else function.tensor)

    def _begin(self, task: _Task, pickled: torch.Tensor | None) -> None:
        arguments = (task.function.key, pickled, *task.arguments)
        try:
            task.future._call = task.method.call_async(
                arguments, {}, lambda value, error: self._ended(task, value, error)
            )
        except BaseException as error:
            self._ended(task, None, error)

    # Called on a thread of the library.
    def _ended(self, task: _Task, value: tuple[Any, ...] | None, error: BaseException | None) -> None:
        if value is not None and value[0] == tasks.UNKNOWN_FUNCTION:
            return self._begin(task, task.function.tensor)
        result, error = (None, error) if value is None else self._outcome(task, value)
        # Nothing else keeps the arguments and the result from here on.
        task.arguments = []
        del value
        future = task.future
        with self._lock:
            self._open.pop(task, None)
            idle = not self._open
            ends = idle and self._closing and self._waiters == 0
            if idle:
                self._idle.notify_all()
        try:
            if error is None:
                future.set_result(result)
            elif isinstance(error, errors.Cancelled):
                future._was_cancelled()
            else:
                future.set_exception(error)
        except concurrent.futures.InvalidStateError:
            pass  # cancelled meanwhile
        if ends:
            self._end_pool()

    def _outcome(self, task: _Task, value: tuple[Any, ...]) -> tuple[Any, BaseException | None]:
        kind, parts = value[0], value[1:]
        if kind != tasks.VALUE:
            return None, self._error_of(task, kind, tasks.Raised(*payload.loads(parts)))
        try:
            return payload.loads(parts, program_main()), None
        except BaseException as raised:
            error = errors.PayloadError(f"the result of {task.name} could not be unpickled in this process")
            error.__cause__ = raised
            return None, error

    def _error_of(self, task: _Task, kind: int, raised: tasks.Raised) -> BaseException:
        remote = errors.RemoteError(
            f"{raised.python_type}: {raised.message}",
            python_type=raised.python_type,
            message=raised.message,
            traceback=raised.traceback,
            worker=f"worker process {raised.process_id}",
        )
        own: BaseException = remote
        try:
            unpickled = payload.whole_loads(raised.pickled, program_main())[0] if raised.pickled else None
            if isinstance(unpickled, BaseException):
                own = unpickled
                own.__cause__ = remote
        except BaseException:
            remote.add_note("The exception itself could not be unpickled in this process.")
        if kind == tasks.RAISED:
            return own
        if kind == tasks.UNREADABLE:
            unreadable = errors.PayloadError(f"{task.name} or its arguments could not be unpickled in a worker")
            unreadable.__cause__ = own
            return unreadable
        failed = errors.InitializerFailed(f"the initializer raised in a worker: {remote}")
        failed.__cause__ = own
        self._break(str(failed), own)
        return failed

    def _break(self, text: str, cause: BaseException) -> None:
        with self._lock:
            if self.broken is not None:
                return
            self.broken = text
        logging.getLogger("concurrent.futures").critical("Exception in initializer:", exc_info=cause)

    def close(self, wait: bool, cancel_waiting: bool = False, stop_running: bool = False) -> None:
        if os.getpid() != self._process:
            return
        with self._lock:
            self._closing = True
            # Those that the workers have, or get at this moment, are not waiting.
            first = 0 if stop_running else self._workers
            cancelled = [*self._open][first:] if cancel_waiting or stop_running else []
            self._waiters += wait
        for task in reversed(cancelled):
            task.future._end(stop_running)
        try:
            with self._lock:
                while wait and self._open:
                    self._idle.wait()
                idle = not self._open
        finally:
            with self._lock:
                self._waiters -= wait
        if idle:
            self._end_pool()

    def _end_pool(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None and self._owns_pool:
            pool.close()


_alive: weakref.WeakSet[_Calls] = weakref.WeakSet()
_exiting = False


# As the executors of concurrent.futures, a program that ends waits for its calls, unless Ctrl-C ends it: before its own
# atexit handlers run, and before threads are joined, which may go on submitting.
def _end_all() -> None:
    global _exiting
    _exiting = True
    interrupted = getattr(sys, "last_type", None) is KeyboardInterrupt
    for calls in [*_alive]:
        try:
            calls.close(wait=True, cancel_waiting=interrupted, stop_running=interrupted)
        except KeyboardInterrupt:
            interrupted = True
            calls.close(wait=True, cancel_waiting=True, stop_running=True)


threading._register_atexit(_end_all)  # type: ignore[attr-defined]


def _prepared(initializer: Callable[..., object] | None, initargs: tuple[Any, ...]) -> payload.Parts:
    """What a worker does before its first call. Empty: nothing."""
    settings = program_settings()
    if settings is None and initializer is None:
        return []
    try:
        return payload.dumps((settings, initializer, initargs), _native.tensor_of, program_main())
    except Exception as error:
        error.add_note(
            "The initializer or its initargs can't be pickled. Workers are not forked from this program: of "
            "multiprocessing's locks, events, queues and values, they can use those of a multiprocessing.Manager()."
        )
        raise


class Executor(concurrent.futures.Executor):
    """A concurrent.futures.Executor whose calls run in worker processes, and which one dead worker does not break.

    Functions go by value (lambdas, closures, functions of the main script and of notebooks), once to each worker, with
    the globals of the main script that they use. Of arguments and results, the memory of torch tensors, numpy arrays
    and long bytes is passed in shared memory: an argument is copied once, a tensor or an array that the call made
    never. Do not change an argument before its call has ended.

    If a worker dies, the future of the call that it ran raises WorkerLost, which is a BrokenProcessPool; all other
    calls go on, and the next worker takes its place. future.cancel() also ends a call that runs.

    Thread-safe. Not for use in a process that was forked after it was made.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        mp_context: object = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        max_tasks_per_child: int | None = None,
        pool: _native.Pool | None = None,
        **options: Unpack[PoolFields],
    ) -> None:
        """max_workers: the number of workers, None one for each processor.

        initializer(*initargs) runs once in each worker before its first call; if it raises, no call can run any more:
        each raises InitializerFailed. max_tasks_per_child: a worker is replaced after so many calls. mp_context is
        accepted for compatibility and ignored. pool: an existing Pool, which outlives the Executor. options: fields of
        PoolOptions, for example worker_memory or python_paths.
        """
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if max_tasks_per_child is not None:
            if not isinstance(max_tasks_per_child, int):
                raise TypeError("max_tasks_per_child must be an integer")
            if max_tasks_per_child <= 0:
                raise ValueError("max_tasks_per_child must be >= 1")
        if pool is not None and (max_workers is not None or options):
            raise TypeError("pool is an existing Pool: it has its number of workers and its options already")
        prepared = _prepared(initializer, initargs)
        made = pool if pool is not None else _native.Pool(max_workers, **options)
        self._calls = _Calls(made, pool is None, max_tasks_per_child or 0, prepared)
        self._run = self._calls.run
        self._run_chunk = self._calls.run_chunk
        self._max_workers = len(made)
        self._end = weakref.finalize(self, self._calls.close, False)
        self._end.atexit = False  # type: ignore[misc]  # _end_all() does it

    def with_options(self, *, timeout: float | None = None, idempotent: bool | None = None) -> Self:
        """This executor, whose calls get these options.

        timeout: seconds that a call may run; then it raises DeadlineExceeded and its worker is killed. idempotent: if
        its worker dies, the call runs again on another one.
        """
        view = object.__new__(type(self))
        view.__dict__.update(self.__dict__)
        view._run = self._run.with_options(run_time=timeout, idempotent=idempotent)
        view._run_chunk = self._run_chunk.with_options(run_time=timeout, idempotent=idempotent)
        view._whole = self
        return view

    _whole: "Executor | None" = None  # keeps the executor, which ends its pool when it is collected

    @property
    def _broken(self) -> str | bool:
        return self._calls.broken or False

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Begins the call fn(*args, **kwargs) in a worker and returns its Future.

        What can't be pickled is an exception of the Future.
        """
        return self._submit(self._run, fn, args, kwargs)

    def _submit(
        self, method: _native.Model, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Future[Any]:
        self._calls.check()
        future: Future[Any] = Future()
        name = getattr(fn, "__qualname__", None) or repr(fn)
        try:
            function = self._calls.pickled(fn)
            arguments = payload.call_dumps(args, kwargs, _native.tensor_of, program_main())
        except Exception as error:
            error.add_note(_unpicklable(name, fn, args, kwargs))
            future.set_exception(error)
            return future
        self._calls.add(_Task(future, function, name, method, arguments))
        return future

    def map(
        self,
        fn: Callable[..., _T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[_T]:
        """An iterator of fn(*items) for the items of the iterables, in their order.

        timeout: seconds from now, after which the iterator raises TimeoutError and the calls end. chunksize: so many
        items are one call. buffersize: at most so many calls whose results were not taken yet; None: no limit, all
        items are read now.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if buffersize is not None:
            if not isinstance(buffersize, int):
                raise TypeError("buffersize must be an integer or None")
            if buffersize < 1:
                raise ValueError("buffersize must be None or > 0")
        self._calls.check()
        until = None if timeout is None else time.monotonic() + timeout
        items = zip(*iterables)  # noqa: B905: the shortest one ends the map, as in map()
        if chunksize == 1:
            # As in concurrent.futures, a submit() of a subclass sees the calls of map(), too.
            begun = (self.submit(fn, *each) for each in items)
            return _in_order(begun, buffersize, until)
        chunks = iter(lambda: tuple(itertools.islice(items, chunksize)), ())
        if type(self).submit is not Executor.submit:
            begun = (self.submit(tasks.call_each, fn, each) for each in chunks)  # type: ignore[arg-type]
        else:
            begun = (self._submit(self._run_chunk, fn, each, {}) for each in chunks)
        return itertools.chain.from_iterable(_in_order(begun, buffersize, until))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accepts no more calls. wait: returns when all have ended.

        cancel_futures: cancels those that wait. The oldest max_workers calls are not among them.
        """
        self._calls.close(wait, cancel_waiting=cancel_futures)

    def stop(self) -> None:
        """Accepts no more calls and cancels all, those that run, too: their workers are killed."""
        self._calls.close(True, cancel_waiting=True, stop_running=True)

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: object) -> None:
        """As shutdown(); after a KeyboardInterrupt all calls are cancelled, those that run, too."""
        interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        self._calls.close(True, cancel_waiting=interrupted, stop_running=interrupted)


def _in_order(begun: Iterator[Future[Any]], most: int | None, until: float | None) -> Iterator[Any]:
    futures = collections.deque(itertools.islice(begun, most))
    return _results(futures, begun, until)


def _results(futures: collections.deque[Future[Any]], begun: Iterator[Future[Any]], until: float | None) -> Iterator[Any]:
    try:
        while futures:
            # No variable holds the result: the caller's is the only reference.
            yield _taken(futures, begun, until)
    finally:
        for future in futures:
            future._end(stop=False)


def _taken(futures: collections.deque[Future[Any]], begun: Iterator[Future[Any]], until: float | None) -> Any:
    future = futures.popleft()
    try:
        result = future.result(None if until is None else max(0.0, until - time.monotonic()))
    except (TimeoutError, KeyboardInterrupt) as error:
        # The function itself may raise a TimeoutError.
        if isinstance(error, KeyboardInterrupt) or not future.done():
            for each in [*reversed(futures), future]:
                each.cancel()
        raise
    futures.extend(itertools.islice(begun, 1))
    return result


def _unpicklable(name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Which part of a call can't be pickled."""
    parts = [("the function", fn)]
    parts += [(f"argument {number}", each) for number, each in enumerate(args, 1)]
    parts += [(f"argument {key}", each) for key, each in kwargs.items()]
    for what, each in parts:
        try:
            payload.dumps(each, _native.tensor_of, program_main(), read_once=each is not fn)
        except Exception:
            return f"In a call of {name}, {what}, of type {type(each).__qualname__}, could not be pickled."
    return f"The arguments of {name} could not be pickled."
