# SPDX-License-Identifier: BSD-3-Clause
"""isopool.Executor: values, deaths, cancelling, time limits, the end of the program."""

import asyncio
import concurrent.futures
import contextlib
import functools
import gc
import logging
import multiprocessing
import operator
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import weakref
import zipapp
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import isopool
import numpy as np
import pytest
import torch
from programs import INTERRUPTED, PATIENCE, run_program


@pytest.fixture(scope="module")
def executor() -> Iterator[isopool.Executor]:
    with isopool.Executor(2) as made:
        yield made


def square(x: Any) -> Any:
    return x * x


def die(signal_number: int = signal.SIGKILL) -> None:
    os.kill(os.getpid(), signal_number)


def plain(value: Any) -> Any:
    """The value with lists in place of arrays and tensors, for ==."""
    if isinstance(value, np.ndarray | torch.Tensor):
        return str(value.dtype), value.tolist()
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return {key: plain(each) for key, each in value.items()} if isinstance(value, dict) else value


class Point:
    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and other.x == self.x

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "value",
    [
        None,
        12345678901234567890,
        (1, "two", {"three": [4.0]}),
        b"short",
        b"long" * 10000,
        bytearray(b"long" * 10000),
        Point(5),
        frozenset({"a"}),
        [{"deep": (np.arange(10000.0), {"er": torch.arange(20000)})}],
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_cross_both_ways(executor: isopool.Executor, value: Any) -> None:
    result = executor.submit(lambda x: x, value).result()
    assert type(result) is type(value)
    assert plain(result) == plain(value)


@pytest.mark.parametrize("dtype", [np.float64, np.int8, np.bool_, np.complex64, np.dtype("U7"), np.dtype([("a", "i4")])])
def test_numpy_arrays_keep_dtype_and_shape(executor: isopool.Executor, dtype: Any) -> None:
    array = np.zeros((300, 70), dtype)
    result = executor.submit(lambda x: x[::2], array).result()
    assert result.dtype == array.dtype
    np.testing.assert_array_equal(result, array[::2])


def test_tensors_keep_strides_gradients_and_kind(executor: isopool.Executor) -> None:
    base = torch.randn(100, 200)
    weight = torch.nn.Parameter(torch.randn(5000))
    leaf = torch.randn(5000, requires_grad=True)
    half = torch.randn(4096).bfloat16()
    transposed, parameter, tensor, other, empty = executor.submit(
        lambda *each: each, base.t(), weight, leaf, half, torch.empty(0)
    ).result()
    assert torch.equal(transposed, base.t())
    assert isinstance(parameter, torch.nn.Parameter) and torch.equal(parameter, weight)
    assert tensor.requires_grad and tensor.is_leaf and torch.equal(tensor, leaf)
    assert other.dtype is torch.bfloat16 and torch.equal(other, half)
    assert empty.shape == (0,)


def test_arrays_of_arguments_and_results_lie_in_shared_memory(executor: isopool.Executor) -> None:
    def where(array: np.ndarray[Any, Any], tensor: torch.Tensor) -> list[str]:
        with open("/proc/self/maps") as maps:
            areas = [line.split(maxsplit=5) for line in maps]

        def area(address: int) -> str:
            for span, *_, name in (each for each in areas if len(each) == 6):
                first, last = (int(each, 16) for each in span.split("-"))
                if first <= address < last:
                    return name
            return ""

        return [area(array.ctypes.data), area(tensor.data_ptr())]

    for name in executor.submit(where, np.ones(100000), torch.ones(100000)).result():
        assert "memfd" in name
    result = executor.submit(np.ones, 100000).result()
    assert "memfd" in where(result, torch.from_numpy(result))[0]
    result += 1  # and it is the caller's to write
    assert result.sum() == 200000


def test_a_call_copies_an_argument_once_and_an_array_that_it_made_never() -> None:
    with isopool.Pool(1) as pool, isopool.Executor(pool=pool) as own:
        own.submit(abs, 1).result()

        def copied(function: Callable[..., Any], *args: Any) -> dict[str, int]:
            before = pool.statistics().copied
            own.submit(function, *args).result()
            after = pool.statistics().copied
            return {name: count - before[name] for name, count in after.items() if count - before[name] > 4096}

        def known(function: Callable[..., Any], *args: Any) -> Callable[..., Any]:
            for _ in range(2):  # the calls that a function of this program goes along with
                own.submit(function, *args).result()
            return function

        assert copied(len, torch.ones(1000000)) == {"input_outside_shared_memory": 4000000}
        assert copied(len, np.ones(1000000)) == {"input_outside_shared_memory": 8000000}
        same = known(lambda x: x, 1)
        assert copied(same, np.ones(1000000)) == {"input_outside_shared_memory": 8000000}
        both = known(lambda x: (x[5:], x), "text")
        assert copied(both, np.ones(1000000)) == {"input_outside_shared_memory": 8000000}
        part = known(lambda x: x.numpy()[10:20000], torch.ones(1))
        assert copied(part, torch.ones(1000000)) == {"input_outside_shared_memory": 4000000}

        def made(function: Callable[..., Any], *args: Any) -> dict[str, int]:
            for _ in range(4):  # the worker's shared memory for results grows by what the function needs
                own.submit(function, *args).result()
            return copied(function, *args)

        assert made(torch.ones, 10000000) == {}
        assert made(torch.ones, 1000000) == {}
        assert made(np.ones, 1000000) == {}
        assert made(np.zeros, 1000000) == {}
        assert made(lambda: {"sum": np.ones(1000000) + np.ones(1000000)}) == {}
        assert copied(lambda x: x + 1, pool.empty([1000000], torch.float32)) == {}


def test_an_argument_that_comes_back_is_the_callers_as_the_call_left_it() -> None:
    def add(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        os.kept = array  # type: ignore[attr-defined]
        array += 1
        return array[1000:]

    def change() -> float:
        os.kept += 1  # type: ignore[attr-defined]
        return float(os.kept[1000])  # type: ignore[attr-defined]

    with isopool.Executor(1) as own:
        argument = np.zeros(100000)
        result = own.submit(add, argument).result()
        assert result.shape == (99000,) and own.submit(change).result() == 2
        assert result.sum() == 99000 and argument.sum() == 0
        result += 5
        assert own.submit(change).result() == 3 and argument.sum() == 0


def test_an_array_that_the_worker_made_and_keeps_stays_as_it_was() -> None:
    def keep() -> np.ndarray[Any, Any]:
        os.made = np.full(100000, 7)  # type: ignore[attr-defined]
        return os.made  # type: ignore[attr-defined]

    with isopool.Executor(1) as own:
        result = own.submit(keep).result()
        result += 1
        assert own.submit(lambda: os.made.sum()).result() == 700000  # type: ignore[attr-defined]
        assert result.sum() == 800000


def test_an_array_of_a_worker_keeps_its_values_when_its_size_changes() -> None:
    def change() -> list[int]:
        array = np.arange(100000)
        sums = []
        for size in (300000, 50000, 100, 70000):
            array.resize(size, refcheck=False)
            sums.append(int(array.sum()))
        array[:] = 1
        return [*sums, int(array.sum()), int(np.zeros(100000).sum())]

    with isopool.Executor(1) as own:
        for _ in range(3):
            assert own.submit(change).result() == [4999950000, 1249975000, 4950, 4950, 70000, 0]


def test_arrays_that_a_worker_makes_in_threads_are_freed_by_others() -> None:
    def make() -> int:
        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            large = [np.ones(200000) for _ in range(4)]
            sums = threads.map(lambda array: array.sum(), large)
            made = [*threads.map(np.ones, [200000] * 8)]
            del large
            return int(sum(sums) + sum(array.sum() for array in made))

    with isopool.Executor(1) as own:
        assert [own.submit(make).result() for _ in range(20)] == [2400000] * 20


def test_results_outlive_the_executor() -> None:
    with isopool.Executor(1) as own:
        array = own.submit(np.arange, 100000).result()
    assert array.sum() == 4999950000


def test_an_array_that_the_worker_keeps_stays_as_it_was(executor: isopool.Executor) -> None:
    with isopool.Executor(1) as own:
        own.submit(lambda array: setattr(os, "kept", array), np.full(100000, 7)).result()
        for _ in range(20):
            own.submit(len, np.zeros(100000)).result()
        assert own.submit(lambda: os.kept.sum()).result() == 700000


def test_proxies_of_a_multiprocessing_manager_work_in_calls_and_initializers() -> None:
    with multiprocessing.get_context("spawn").Manager() as manager:
        queue, begun = manager.Queue(), manager.Queue()

        def pass_on(value: int) -> int:
            queue.put(value)
            return os.getpid()

        with isopool.Executor(2, initializer=lambda: begun.put(os.getpid())) as executor:
            first = set(executor.map(pass_on, range(4)))
            assert {begun.get(timeout=PATIENCE) for _ in first} == first
            executor.submit(die).exception()
            # The next worker has the key, too.
            executor.submit(queue.put, 4).result()
        assert sorted(queue.get(timeout=PATIENCE) for _ in range(5)) == [0, 1, 2, 3, 4]


def test_other_calls_of_a_worker_do_not_find_the_multiprocessing_key_of_an_executor() -> None:
    def key() -> str:
        return bytes(multiprocessing.process.current_process().authkey).hex()

    with isopool.Pool(1) as pool, isopool.Executor(pool=pool) as executor:
        of_other_calls = pool.load(key)
        before = of_other_calls()
        assert executor.submit(key).result() == key() != before
        assert of_other_calls() == before


def test_functions_of_every_kind_go_by_value(executor: isopool.Executor) -> None:
    factor = 3

    def outer(x: int) -> int:
        return inner(x) * factor

    def inner(x: int) -> int:
        return x + 1

    class Callable_:
        def __call__(self, x: int) -> int:
            return x * 10

        def method(self, x: int) -> int:
            return x * 100

    assert executor.submit(outer, 1).result() == 6
    assert executor.submit(functools.partial(pow, 2), 10).result() == 1024
    assert executor.submit(Callable_(), 4).result() == 40
    assert executor.submit(Callable_().method, 4).result() == 400
    assert executor.submit(len, "four").result() == 4


def test_a_function_whose_surroundings_changed_is_sent_again(executor: isopool.Executor) -> None:
    numbers = [1]
    number = 1

    def total() -> int:
        return sum(numbers) + number

    assert executor.submit(total).result() == 2
    numbers.append(5)
    assert executor.submit(total).result() == 7
    number = 10
    assert executor.submit(total).result() == 16


def test_a_long_function_reaches_every_worker_also_a_new_one() -> None:
    table = bytes(range(256)) * 4000

    def look(index: int) -> tuple[int, int]:
        return table[index], os.getpid()

    with isopool.Executor(2) as own:
        first = list(own.map(look, range(200)))
        with pytest.raises(isopool.WorkerLost):
            own.submit(die).result()
        second = list(own.map(look, range(200)))
    assert [value for value, _ in first + second] == [index % 256 for index in range(200)] * 2


def test_a_workers_death_ends_its_own_future_only(executor: isopool.Executor) -> None:
    before = [executor.submit(square, number) for number in range(50)]
    dead = executor.submit(die, signal.SIGSEGV)
    after = [executor.submit(square, number) for number in range(50)]
    with pytest.raises(BrokenProcessPool) as caught:
        dead.result()
    assert isinstance(caught.value, isopool.WorkerLost)
    assert caught.value.signal == signal.SIGSEGV and caught.value.started
    assert "die" in caught.value.crash_log
    assert [each.result() for each in before + after] == [number**2 for number in range(50)] * 2


def test_an_idempotent_call_runs_again_on_another_worker(executor: isopool.Executor, tmp_path: Any) -> None:
    mark = tmp_path / "ran"

    def die_once() -> str:
        with contextlib.suppress(FileExistsError):
            mark.touch(exist_ok=False)
            die()
        return "second"

    assert executor.with_options(idempotent=True).submit(die_once).result() == "second"


def hang(arrived: str) -> None:
    with open(arrived, "w") as file:
        file.write(str(os.getpid()))
    while True:
        time.sleep(1000)


def await_file(path: Any) -> int:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with contextlib.suppress(FileNotFoundError, ValueError):
            return int(path.read_text())
        time.sleep(0.005)  # the poll of a file, with a limit
    raise AssertionError(f"{path} did not appear")


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def await_end(process: int) -> None:
    until = time.monotonic() + PATIENCE
    while is_alive(process) and time.monotonic() < until:
        time.sleep(0.005)  # the poll of a process, with a limit
    assert not is_alive(process)


def test_a_call_that_runs_is_cancelled_with_its_worker(tmp_path: Any) -> None:
    with isopool.Executor(1) as own:
        future = own.submit(hang, str(tmp_path / "a"))
        worker = await_file(tmp_path / "a")
        waiting = own.submit(square, 3)
        assert future.running() and not waiting.done()
        assert future.cancel() and future.cancelled() and not future.running()
        with pytest.raises(concurrent.futures.CancelledError):
            future.result()
        assert waiting.result() == 9
        await_end(worker)
        assert not waiting.cancel()


def test_waiting_and_callbacks_see_a_cancelled_call(tmp_path: Any) -> None:
    with isopool.Executor(1) as own:
        future = own.submit(hang, str(tmp_path / "a"))
        await_file(tmp_path / "a")
        called = threading.Event()
        future.add_done_callback(lambda _: called.set())
        threading.Thread(target=future.cancel).start()
        done, _ = concurrent.futures.wait([future], timeout=PATIENCE)
        assert done == {future} and called.wait(PATIENCE)


def test_a_time_limit_stops_the_call_and_does_not_count_the_wait(tmp_path: Any) -> None:
    with isopool.Executor(1) as own:
        limited = own.with_options(timeout=0.5)
        future = limited.submit(hang, str(tmp_path / "a"))
        worker = await_file(tmp_path / "a")
        behind = [limited.submit(time.sleep, 0.2) for _ in range(5)]  # 1 s in all
        with pytest.raises(isopool.DeadlineExceeded) as caught:
            future.result()
        assert caught.value.started
        await_end(worker)
        assert [each.result() for each in behind] == [None] * 5


class OwnError(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")  # which its own __init__ does not take


def test_an_exception_keeps_its_type_and_has_the_workers_traceback(executor: isopool.Executor) -> None:
    def raise_it() -> None:
        raise KeyError("key of the worker")

    with pytest.raises(KeyError, match="key of the worker") as caught:
        executor.submit(raise_it).result()
    cause = caught.value.__cause__
    assert isinstance(cause, isopool.RemoteError)
    assert cause.python_type == "KeyError"
    assert f'{__file__}", line' in cause.traceback and "in raise_it" in cause.traceback
    assert 'raise KeyError("key of the worker")' in cause.traceback


def test_an_exception_that_cannot_be_rebuilt_is_a_remote_error(executor: isopool.Executor) -> None:
    def raise_it() -> None:
        raise OwnError(1, 2)

    with pytest.raises(isopool.RemoteError, match="OwnError: 1 and 2") as caught:
        executor.submit(raise_it).result()
    assert "in raise_it" in caught.value.traceback


def test_what_cannot_be_pickled_is_named(executor: isopool.Executor) -> None:
    future = executor.submit(print, 1, threading.Lock())
    with pytest.raises(TypeError) as caught:
        future.result()
    assert "argument 2, of type lock" in "\n".join(caught.value.__notes__)
    future = executor.submit(threading.Lock)
    with pytest.raises(TypeError) as caught:
        future.result()
    assert "The result of " in "\n".join(caught.value.__notes__)


class Counted:
    def __init__(self, executor: isopool.Executor) -> None:
        self.executor = executor

    def __getstate__(self) -> dict[str, Any]:
        return {"number": self.executor.submit(square, 3).result(PATIENCE)}

    def plus(self, number: int) -> int:
        return self.number + number  # type: ignore[attr-defined,no-any-return]


def test_the_pickling_of_a_function_may_make_calls(executor: isopool.Executor) -> None:
    assert executor.submit(Counted(executor).plus, 1).result() == 10
    assert list(executor.map(Counted(executor).plus, [1, 2])) == [10, 11]


def test_a_descriptor_goes_with_the_arguments_of_a_call_only(executor: isopool.Executor) -> None:
    reader, writer = multiprocessing.Pipe(duplex=False)
    with pytest.raises(TypeError, match="'multiprocessing.connection.Connection' object") as raised:
        executor.submit(functools.partial(writer.send, 5)).result()
    assert "the function, of type partial" in raised.value.__notes__[-1]
    with pytest.raises(TypeError, match="Connection' object"):
        isopool.Executor(1, initializer=print, initargs=(reader,))
    with pytest.raises(RuntimeError, match="inheritance"):
        executor.submit(square, multiprocessing.RawValue("i", 1)).result()
    with pytest.raises(TypeError, match="argument 2"):
        # The first argument can go.
        raise_notes(executor.submit(max, writer, threading.Lock()))


def raise_notes(future: concurrent.futures.Future[Any]) -> None:
    error = future.exception()
    assert error is not None
    raise type(error)(*error.args, *error.__notes__)


def test_what_cannot_be_unpickled_says_where(executor: isopool.Executor) -> None:
    class Unreadable:
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
            return int, ("not a number",)

    with pytest.raises(isopool.PayloadError, match="print or its arguments could not be unpickled in a worker"):
        executor.submit(print, Unreadable()).result()
    with pytest.raises(isopool.PayloadError, match="the result of .* in this process") as caught:
        executor.submit(Unreadable).result()
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_initializer_runs_in_every_worker_also_in_a_new_one() -> None:
    def begin(value: int) -> None:
        os.environ["BEGUN"] = str(int(os.environ.get("BEGUN", "0")) + value)

    with isopool.Executor(2, initializer=begin, initargs=(5,)) as own:
        assert set(own.map(lambda _: os.environ["BEGUN"], range(50))) == {"5"}
        with pytest.raises(isopool.WorkerLost):
            own.submit(die).result()
        assert set(own.map(lambda _: os.environ["BEGUN"], range(50))) == {"5"}


def test_a_failing_initializer_breaks_the_executor() -> None:
    def begin() -> None:
        raise ValueError("no database")

    with isopool.Executor(1, initializer=begin) as own:
        with pytest.raises(isopool.InitializerFailed, match="no database") as caught:
            own.submit(square, 1).result()
        assert isinstance(caught.value.__cause__, ValueError)
        with pytest.raises(BrokenProcessPool, match="no database"):
            own.submit(square, 1)


def test_the_replacement_after_max_tasks_per_child_is_no_warning_and_keeps_the_order(tmp_path: Any) -> None:
    path = str(tmp_path / "order")
    events: list[tuple[int, str]] = []

    def note(number: int) -> None:
        with open(path, "a") as file:
            file.write(f"{number} ")
        time.sleep(0.02)

    with isopool.Executor(1, max_tasks_per_child=3, logger=lambda *event: events.append(event)) as own:
        concurrent.futures.wait([own.submit(note, number) for number in range(15)])
    with open(path) as file:
        order = [int(word) for word in file.read().split()]
    # The call that a worker had next when it left may change places with the one behind it.
    assert len(order) == 15 and all(abs(number - place) <= 1 for place, number in enumerate(order)), order
    assert [event for event in events if event[0] >= logging.WARNING] == []


def test_a_worker_is_replaced_after_max_tasks_per_child() -> None:
    with isopool.Executor(1, max_tasks_per_child=10) as own:
        processes = [own.submit(os.getpid).result() for _ in range(60)]
    assert [processes.count(each) for each in dict.fromkeys(processes)] == [10] * 6
    with isopool.Executor(2, max_tasks_per_child=1) as own:
        processes = list(own.map(lambda _: os.getpid(), range(30)))
    assert len(set(processes)) == 30


def test_map_reads_no_more_items_than_its_buffer(executor: isopool.Executor) -> None:
    taken = []

    def items() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    results = executor.map(square, items(), buffersize=3)
    assert taken == [0, 1, 2]
    assert next(results) == 0
    assert len(taken) == 4
    assert list(results) == [number**2 for number in range(1, 100)]


def test_map_in_chunks_gives_the_same_results(executor: isopool.Executor) -> None:
    assert list(executor.map(pow, range(100), range(1, 200), chunksize=7)) == [a ** (a + 1) for a in range(100)]


def test_asyncio_runs_calls_and_its_cancellation_stops_them(tmp_path: Any) -> None:
    async def main(own: isopool.Executor) -> None:
        loop = asyncio.get_running_loop()
        assert await asyncio.gather(*[loop.run_in_executor(own, square, each) for each in range(20)]) == [
            each**2 for each in range(20)
        ]
        task = asyncio.ensure_future(loop.run_in_executor(own, hang, str(tmp_path / "a")))
        while not (tmp_path / "a").exists():
            await asyncio.sleep(0.005)
        worker = await_file(tmp_path / "a")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(await_end, worker)
        assert await loop.run_in_executor(own, square, 6) == 36

    with isopool.Executor(1) as own:
        asyncio.run(main(own))


def test_executors_share_a_pool_which_outlives_them() -> None:
    with isopool.Pool(2) as pool:
        for number in range(3):
            with isopool.Executor(pool=pool) as own:
                assert own.submit(square, number).result() == number**2
        assert pool.load(square)(5) == 25


def test_shutdown_without_waiting_completes_the_calls() -> None:
    own = isopool.Executor(1)
    futures = [own.submit(square, each) for each in range(100)]
    own.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="after shutdown"):
        own.submit(square, 1)
    assert [each.result() for each in futures] == [each**2 for each in range(100)]


def test_stop_ends_calls_that_run(tmp_path: Any) -> None:
    own = isopool.Executor(1)
    futures = [own.submit(hang, str(tmp_path / "a")) for _ in range(3)]
    worker = await_file(tmp_path / "a")
    own.stop()
    assert all(each.cancelled() for each in futures)
    await_end(worker)


def test_calls_start_in_the_order_of_their_submission() -> None:
    def number_of_call() -> int:
        time.sleep(0.002)  # longer than the calls of which a worker gets one in advance
        calls: list[None] = sys.__dict__.setdefault("calls_of_a_test", [])
        calls.append(None)
        return len(calls) - 1

    with isopool.Executor(1) as executor:
        futures = [executor.submit(number_of_call) for _ in range(200)]
        assert [future.result() for future in futures] == [*range(200)]


def test_shutdown_cancels_waiting_calls_only() -> None:
    executor = isopool.Executor(2)
    futures = [executor.submit(time.sleep, 0.01) for _ in range(20)]
    executor.shutdown(cancel_futures=True)
    # The next two may have begun to wait in the pool's line.
    assert [future.cancelled() for future in futures[4:]] == [True] * 16
    assert [future.result() for future in futures[:2]] == [None, None]


def test_the_workers_of_an_executor_end_with_its_last_reference() -> None:
    own = isopool.Executor(1)
    worker = own.submit(os.getpid).result()
    del own
    await_end(worker)


def exit_code_of_child(code: object) -> int:
    child = os.fork()
    if child == 0:
        sys.exit(code)  # type: ignore[arg-type]
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_that_a_call_forks_ends_with_its_exit_code(executor: isopool.Executor) -> None:
    assert list(executor.map(exit_code_of_child, (None, 0, 3, 7, "a text"))) == [0, 0, 3, 7, 1]


def test_a_forked_child_is_refused(executor: isopool.Executor) -> None:
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        text = "accepted"
        try:
            executor.submit(square, 1)
        except isopool.errors.Error as error:
            text = str(error)
        os.write(write_end, text.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert "forked after the Executor was made" in os.read(read_end, 1000).decode()
    assert executor.submit(square, 2).result() == 4


@pytest.mark.parametrize("wait", ["result()", "result(timeout=1000)", "exception()"])
def test_ctrl_c_ends_the_wait_and_the_call(tmp_path: Any, wait: str) -> None:
    program = f"""
        with isopool.Executor(1) as executor:
            threading.Thread(target=interrupt, args=(sys.argv[1],)).start()
            try:
                executor.submit(hang, sys.argv[1]).{wait}
            except KeyboardInterrupt:
                print("interrupted", executor.submit(abs, -3).result())
    """
    run = run_program(program, str(tmp_path / "a"), before=INTERRUPTED)
    assert run.stdout == "interrupted 3\n", run.stderr
    await_end(await_file(tmp_path / "a"))


def test_ctrl_c_ends_a_program_with_calls_in_flight(tmp_path: Any) -> None:
    program = """
        executor = isopool.Executor(2)
        futures = [executor.submit(hang, f"{sys.argv[1]}{number}") for number in range(10)]
        interrupt(sys.argv[1] + "0")
        time.sleep(1000)
    """
    run = run_program(program, str(tmp_path / "a"), before=INTERRUPTED)
    assert run.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in run.stderr


def test_a_program_that_ends_waits_for_its_calls(tmp_path: Any) -> None:
    program = """
        import sys, time
        import isopool

        def late(path):
            time.sleep(0.5)
            open(path, "w").write("1")

        isopool.Executor(1).submit(late, sys.argv[1])
    """
    assert run_program(program, str(tmp_path / "a")).returncode == 0
    assert await_file(tmp_path / "a") == 1


def test_functions_and_classes_of_main_come_back_as_themselves() -> None:
    program = """
        import isopool

        class Found(Exception):
            pass

        class Value:
            pass

        def raise_it():
            raise Found()

        with isopool.Executor(1) as executor:
            print(type(executor.submit(Value).result()) is Value)
            try:
                executor.submit(raise_it).result()
            except Found:
                print("found")
    """
    assert run_program(program).stdout == "True\nfound\n"


def too_large() -> None:
    np.ones(1 << 32, dtype=np.uint8)


def missing() -> None:
    import no_such_module  # noqa: F401


class Counting(isopool.Executor):
    submitted = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> isopool.Future[Any]:
        self.submitted += 1
        return super().submit(fn, *args, **kwargs)


def test_a_submit_of_a_subclass_sees_the_calls_of_map() -> None:
    with Counting(1) as executor:
        assert [*executor.map(abs, [-1, -2])] == [1, 2]
        assert executor.submit(abs, -3).result() == 3
        assert executor.submitted == 3


def test_an_error_says_what_isopool_knows_of_it() -> None:
    with isopool.Executor(1, worker_memory=1 << 30) as executor:
        with pytest.raises(MemoryError) as raised:
            executor.submit(too_large).result()
        assert "the worker's memory is limited to 1 GiB (ISOPOOL_WORKER_MEMORY)" in raised.value.__notes__[0]
        with pytest.raises(ModuleNotFoundError) as absent:
            executor.submit(missing).result()
        assert "neither the package nor the workers' Python" in absent.value.__notes__[0]
    with isopool.Executor(1, sandbox="strict") as executor:
        with pytest.raises(PermissionError) as forbidden:
            executor.submit(open, "/etc/shadow").result()
        assert "the sandbox (strict) forbids file /etc/shadow" in forbidden.value.__notes__[0]


def test_modules_of_a_zipapp_are_found(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "inside.py").write_text("def double(x):\n    return 2 * x\n")
    (source / "__main__.py").write_text(
        "import inside, isopool\n"
        "with isopool.Executor(1) as executor:\n"
        "    print(executor.submit(inside.double, 21).result())\n"
    )
    zipapp.create_archive(source, tmp_path / "app.pyz")
    ended = subprocess.run(
        [sys.executable, tmp_path / "app.pyz"], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (ended.stdout, ended.stderr) == ("42\n", "")


def test_a_module_of_the_scripts_folder_comes_before_an_installed_one(tmp_path: pathlib.Path) -> None:
    # torch has imported tqdm in each worker; nothing has imported joblib there.
    for name in ("tqdm", "joblib"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("def here():\n    return __file__\n")
    (tmp_path / "script.py").write_text(
        """
import isopool, tqdm

def look():
    import joblib
    return tqdm.here(), joblib.here()

if __name__ == "__main__":
    with isopool.Executor(1) as executor:
        print(executor.submit(look).result() == look(), executor.submit(tqdm.here).result() == tqdm.here())
"""
    )
    ended = subprocess.run([sys.executable, tmp_path / "script.py"], text=True, capture_output=True, timeout=PATIENCE)
    assert ended.stdout == "True True\n", ended.stderr


def test_what_initargs_may_be_is_said() -> None:
    with pytest.raises(RuntimeError, match="through inheritance") as raised:
        isopool.Executor(1, initializer=plain, initargs=(multiprocessing.Lock(),))
    assert "multiprocessing.Manager()" in raised.value.__notes__[0]


def process_name() -> str:
    return multiprocessing.current_process().name


def test_a_worker_is_not_the_main_process(executor: isopool.Executor) -> None:
    assert executor.submit(process_name).result().startswith("IsopoolWorker-")


def own_memory(data: bytes) -> int:
    del data
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_worker_keeps_functions_of_so_many_bytes_only() -> None:
    with isopool.Executor(1) as executor:
        functions = [functools.partial(own_memory, bytes([number]) * (8 << 20)) for number in range(40)]
        sizes = [executor.submit(function).result() for function in functions]
        assert sizes[-1] - sizes[0] < 160 << 20  # of 320 MB
        # Those that it has dropped are sent again.
        assert all(executor.submit(function).result() > 0 for function in (*functions, *functions[::-1]))


def test_a_callback_may_wait_for_the_callback_of_another_call(executor: isopool.Executor) -> None:
    ended: concurrent.futures.Future[bool] = concurrent.futures.Future()

    def wait_for_another(_: concurrent.futures.Future[int]) -> None:
        called = threading.Event()
        executor.submit(abs, -2).add_done_callback(lambda _: called.set())
        ended.set_result(called.wait(30))

    first = executor.submit(abs, -1)
    first.add_done_callback(wait_for_another)
    assert ended.result(60)


def test_results_with_tensors_do_not_stop_the_threads_that_pass_them_on() -> None:
    ended = run_program(
        """
        import threading, time
        import isopool, torch

        def make(number):
            return torch.full((3,), number)

        with isopool.Executor(2) as executor:
            begun = time.monotonic()
            while time.monotonic() < begun + 5:
                left = threading.Semaphore(0)

                def end(future):
                    # Longer than what makes a second thread pass on other results.
                    if int(future.result()[0]) % 10 == 0:
                        time.sleep(0.012)
                    left.release()

                for number in range(100):
                    executor.submit(make, number).add_done_callback(end)
                for _ in range(100):
                    assert left.acquire(timeout=30)
        print("all")
        """
    )
    assert ended.stdout == "all\n", ended.stderr


def test_callbacks_that_wait_in_each_other_get_their_results(executor: isopool.Executor) -> None:
    ended: concurrent.futures.Future[int] = concurrent.futures.Future()

    def go_on(future: concurrent.futures.Future[int]) -> None:
        depth = future.result()
        if depth == 4:
            ended.set_result(depth)
        else:
            inner = executor.submit(operator.add, depth, 1)
            inner.add_done_callback(go_on)
            assert inner.result(30) == depth + 1

    executor.submit(operator.add, 0, 1).add_done_callback(go_on)
    assert ended.result(60) == 4


def test_a_result_does_not_wait_for_the_calls_callbacks(executor: isopool.Executor, tmp_path: pathlib.Path) -> None:
    taken = threading.Event()
    waited: concurrent.futures.Future[bool] = concurrent.futures.Future()
    gate = tmp_path / "gate"

    def end_after_the_gate(path: str) -> int:
        while not os.path.exists(path):
            time.sleep(0.001)
        return 1

    call = executor.submit(end_after_the_gate, str(gate))
    # A callback that comes after the end of the call runs on this thread.
    call.add_done_callback(lambda _: waited.set_result(taken.wait(30)))
    gate.touch()
    assert call.result() == 1
    taken.set()
    assert waited.result(60)


def test_a_method_of_an_object_that_changes_goes_with_what_the_object_has_now(executor: isopool.Executor) -> None:
    prices = {"a": 1}
    get = prices.get

    def price(key: str) -> int | None:
        return get(key)

    assert executor.submit(price, "a").result() == executor.submit(get, "a").result() == 1
    prices["a"] = 2
    assert executor.submit(price, "a").result() == executor.submit(get, "a").result() == 2
    assert list(executor.map(get, ["a", "b"])) == [2, None]


def test_a_function_that_refers_to_itself_is_collected(executor: isopool.Executor) -> None:
    def made() -> Callable[[int], int]:
        def factorial(number: int) -> int:
            return 1 if number < 2 else number * factorial(number - 1)

        return factorial

    function = made()
    assert executor.submit(function, 5).result() == 120
    alive = weakref.ref(function)
    del function
    gc.collect()
    assert alive() is None


def same_twice(first: Any, second: Any) -> tuple[bool, Any, Any]:
    return first is second, first, second


def test_what_a_call_has_twice_it_has_twice_in_the_worker_too(executor: isopool.Executor) -> None:
    class Holder:
        def __init__(self, value: Any) -> None:
            self.value = value

    long = bytes(5000)
    for value in ({"x": long}, {"x": b"short"}, bytearray(5000), (long, long), Holder(long), np.ones(3), [long]):
        same, first, second = executor.submit(same_twice, value, value).result()
        assert same and first is second
    value = {"x": bytearray(5000)}
    assert executor.submit(lambda a, b: a["x"] is b[0]["x"], value, [value]).result()
    held = bytearray(5000)
    assert executor.submit(lambda a, b: a is b.value, held, Holder(held)).result()


def test_a_value_may_contain_itself(executor: isopool.Executor) -> None:
    first: dict[str, Any] = {"long": bytes(5000)}
    first["self"] = first
    second: dict[str, Any] = {"long": bytes(5000)}
    second["tuple"] = (second,)

    third: dict[str, Any] = {}
    third["self"] = third

    def circular() -> dict[str, Any]:
        value: dict[str, Any] = {"long": bytes(5000)}
        value["self"] = (value, [value])
        return value

    assert executor.submit(lambda value: value["self"] is value, first).result()
    assert executor.submit(lambda value: value["tuple"][0] is value, second).result()
    assert executor.submit(lambda value: value["self"] is value, third).result()
    result = executor.submit(circular).result()
    assert result["self"][0] is result and result["self"][1][0] is result
