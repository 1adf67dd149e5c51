# SPDX-License-Identifier: BSD-3-Clause
"""Models that are Python objects, and the other ways to call a model: aio, map, stream, session."""

import asyncio
import functools
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from typing import Any

import isopool
import pytest
import torch
from isopool import aio
from programs import INTERRUPTED, PATIENCE, run_program


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 8)
        self.calls = 0

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        self.calls += 1
        return self.layer(x) * scale

    def count(self) -> int:
        return self.calls

    def items(self, number: int) -> Iterator[torch.Tensor]:
        for each in range(number):
            yield torch.full((2,), float(each))


@pytest.fixture(scope="module")
def pool() -> Iterator[isopool.Pool]:
    with isopool.Pool(2) as made:
        yield made


def mapped_file(address: int, process: int | str = "self") -> str:
    with open(f"/proc/{process}/maps") as maps:
        for line in maps:
            span, _, _, device, inode, *name = line.split(maxsplit=5)
            first, last = (int(each, 16) for each in span.split("-"))
            if first <= address < last:
                return f"{device} {inode} {''.join(name).strip()}"
    return ""


def test_a_module_of_the_program_runs_in_the_workers(pool: isopool.Pool) -> None:
    net = Net()
    model = pool.load(net)
    x = torch.randn(5, 64)
    torch.testing.assert_close(model(x, scale=2.0), net(x, scale=2.0))
    assert model.method("count")() >= 1


def test_all_workers_share_the_weights_of_a_module(pool: isopool.Pool) -> None:
    class Where(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(300000))

        def forward(self) -> tuple[int, str]:
            return os.getpid(), mapped_file(self.weight.data_ptr())

    places = dict(pool.load(Where()).call_on_all())
    assert len(places) == 2 and len(set(places.values())) == 1
    assert "memfd" in next(iter(places.values()))


def test_a_view_of_a_models_buffer_stays_its_view(pool: isopool.Pool) -> None:
    class Halved(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("whole", torch.zeros(10))
            self.half = self.whole[5:].view(1, 5).expand(3, 5)
            self.other = torch.ones(2)

        def forward(self, value: float) -> torch.Tensor:
            self.whole.fill_(value)
            return torch.cat([self.half.reshape(-1), self.other])

    expected = torch.cat([torch.full((15,), 3.0), torch.ones(2)])
    assert pool.load(Halved())(3.0).equal(expected)


def test_functions_and_closures_are_models(pool: isopool.Pool) -> None:
    factor = 3
    assert pool.load(lambda x, add=0: x * factor + add)(5, add=1) == 16


APP = """
import torch
import beside

class Model:
    made = 0

    def __init__(self):
        self.number = beside.NUMBER

    def __call__(self, x):
        return x + self.number

def factory():
    return Model()

def broken():
    return 5
"""


@pytest.fixture
def app(tmp_path: pathlib.Path) -> str:
    (tmp_path / "beside.py").write_text("NUMBER = 40")
    (tmp_path / "app.py").write_text(APP)
    return str(tmp_path / "app.py")


@pytest.mark.parametrize("name", ["factory", "Model"])
def test_a_factory_of_a_file_makes_the_model(pool: isopool.Pool, app: str, name: str) -> None:
    assert pool.load(f"{app}:{name}")(2) == 42


VERSION = """
class Answer:
    pass

def make():
    import os, pickle, {module} as own
    def answer(kill):
        if kill:
            os.kill(os.getpid(), 9)
        made = pickle.loads(pickle.dumps(own.Answer()))
        return {version} if type(made) is Answer else "another class"
    return answer
"""


def test_a_file_is_that_of_the_load_in_each_worker_that_comes_later(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "versioned_model.py"

    def write(version: int) -> None:
        file.write_text(VERSION.format(module=file.stem, version=version))

    def all_answers(model: isopool.Model) -> set[int]:
        return {model(False) for _ in range(8)}

    with isopool.Pool(2) as pool:
        write(1)
        first = pool.load(f"{file}:make")
        assert all_answers(first) == {1}
        write(2)
        second = pool.load(f"{file}:make")
        file.write_text("not Python")
        for _ in range(4):
            with pytest.raises(isopool.WorkerLost):
                second(True)
            assert (all_answers(first), all_answers(second)) == ({1}, {2})
        file.unlink()
        with pytest.raises(isopool.WorkerLost):
            first(True)
        assert (all_answers(first), all_answers(second)) == ({1}, {2})


def test_a_model_by_value_has_the_name_of_its_function_or_type(pool: isopool.Pool, app: str) -> None:
    assert pool.load(f"{app}:factory").name == "app.py:factory"
    assert pool.load(Net()).name == f"{__name__}:Net"
    assert pool.load(mapped_file).name == f"{__name__}:mapped_file"
    assert pool.load(functools.partial(mapped_file, 1)).name == "functools:partial"
    named = lambda: 1  # noqa: E731
    named.__qualname__ = "a\n\ud800" + "b" * 200
    model = pool.load(named)
    assert model.name == f"{__name__}:a?\\ud800" + "b" * (96 - len(__name__) - 9)
    assert model() == 1 and model.name in {each.name for each in pool.statistics().models}


def test_what_is_no_model_is_refused_with_its_reason(pool: isopool.Pool, app: str) -> None:
    with pytest.raises(isopool.RemoteError, match="has no function or class absent"):
        pool.load(f"{app}:absent")
    with pytest.raises(isopool.RemoteError, match="can't be called"):
        pool.load(f"{app}:broken")
    with pytest.raises(FileNotFoundError):
        pool.load("absent.py:factory")
    with pytest.raises(ValueError, match="name of a function"):
        pool.load(f"{app}:no name")
    with pytest.raises(TypeError, match="not int"):
        pool.load(5)


def test_the_modules_that_the_program_finds_are_found_in_workers(tmp_path: pathlib.Path) -> None:
    (tmp_path / "own_module.py").write_text("def triple(x):\n    return 3 * x\n")
    program = """
        import isopool, own_module
        with isopool.Pool(1) as pool:
            print(pool.load(own_module.triple)(5))
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    run = subprocess.run([sys.executable, tmp_path / "program.py"], text=True, capture_output=True, timeout=PATIENCE)
    assert run.stdout == "15\n", run.stderr


def test_asyncio_awaits_calls(pool: isopool.Pool) -> None:
    model = pool.load(lambda x: x * 2)

    async def main() -> list[int]:
        return await asyncio.gather(*[model.aio(each) for each in range(50)])

    assert asyncio.run(main()) == [2 * each for each in range(50)]


def test_awaited_calls_are_begun_no_earlier_than_workers_can_take_them(pool: isopool.Pool) -> None:
    model = pool.load(lambda x: x)
    most = aio.MOST_BEGUN * len(pool)
    begun = []

    async def call(number: int) -> None:
        assert await model.with_options(timeout=PATIENCE).aio(number) == number
        begun.append(pool.statistics().async_calls_queued)

    async def main() -> None:
        await asyncio.gather(*[call(number) for number in range(20 * most)])

    asyncio.run(main())
    assert len(begun) == 20 * most
    assert max(begun) <= most


def test_an_error_of_an_awaited_call_is_raised(pool: isopool.Pool) -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            await pool.load(lambda x: 1 / x).aio(0)
        # asyncio refuses this one as the outcome of a future.
        with pytest.raises(RuntimeError, match="raised StopIteration"):
            await asyncio.wait_for(pool.load(lambda x: next(iter(x))).aio(()), PATIENCE)

    asyncio.run(main())


def test_cancelling_a_task_ends_its_call_in_the_worker(tmp_path: pathlib.Path) -> None:
    mark = tmp_path / "mark"

    def hang(path: str) -> None:
        with open(path, "w") as file:
            file.write("here")
        time.sleep(1000)

    async def main() -> None:
        async with isopool.Pool(1) as pool:
            model = pool.load(hang)
            task = asyncio.create_task(model.aio(str(mark)))
            while not mark.exists():
                await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await pool.load(abs).aio(-4) == 4
        with pytest.raises(isopool.Error, match="closed"):
            pool.statistics()

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_map_keeps_the_order_and_looks_ahead_no_further(pool: isopool.Pool) -> None:
    model = pool.load(lambda x: x * x)
    taken = []

    def items() -> Iterator[int]:
        for number in itertools.count():
            taken.append(number)
            yield number

    results = model.map(items(), lookahead=4)
    assert list(itertools.islice(results, 30)) == [number**2 for number in range(30)]
    assert len(taken) <= 34
    results.close()


def test_map_gives_results_as_they_come_with_their_numbers(pool: isopool.Pool) -> None:
    model = pool.load(lambda x: x * x)
    assert dict(model.map(range(40), ordered=False)) == {number: number**2 for number in range(40)}


def test_map_raises_the_error_of_its_item_and_ends_the_rest(pool: isopool.Pool) -> None:
    results = pool.load(lambda x: 10 // x).map([5, 2, 0, 1])
    assert [next(results), next(results)] == [2, 5]
    with pytest.raises(ZeroDivisionError):
        next(results)
    with pytest.raises(StopIteration):
        next(results)


def test_a_stream_has_the_items_of_a_generator(pool: isopool.Pool) -> None:
    with pool.load(Net()).method("items").stream(3) as stream:
        assert [each.tolist() for each in stream] == [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]


def test_a_session_sees_the_state_of_its_own_calls(pool: isopool.Pool, tmp_path: pathlib.Path) -> None:
    model = pool.load(Net())
    with model.session() as session:
        before = session.call_method("count")
        for _ in range(3):
            session(torch.zeros(64))
        assert session.call_method("count") == before + 3
    with pytest.raises(isopool.Error, match="closed"):
        session(torch.zeros(64))


def test_tensors_of_empty_and_of_the_allocator_pass_without_a_copy(pool: isopool.Pool) -> None:
    where = pool.load(lambda x: (mapped_file(x.data_ptr()), float(x.sum())))
    made = pool.empty([250, 400], torch.float32)
    made.numpy()[:] = 2
    with pool.allocator():
        ones = torch.ones(100000)
    for tensor, total in ((made, 200000.0), (ones, 100000.0)):
        place, seen = where(tensor)
        assert place == mapped_file(tensor.data_ptr()) and "memfd" in place
        assert seen == total
    assert "memfd" not in mapped_file(torch.ones(100000).data_ptr())


def test_shared_tensors_and_results_are_resized_like_ordinary_ones(pool: isopool.Pool) -> None:
    add_one = pool.load(lambda x: x + 1)
    for make in (lambda: pool.empty([1000], torch.float32).fill_(3), lambda: add_one(torch.full([1000], 2.0))):
        grown = make().resize_(5000)
        assert grown[:1000].eq(3).all() and grown.fill_(1).sum() == 5000
        shrunk = make().resize_(10)
        assert shrunk.eq(3).all()
        storage = make()
        storage.untyped_storage().resize_(4 * 4000)
        assert storage.eq(3).all() and storage.untyped_storage().nbytes() == 16000
        out = torch.add(torch.ones(4000), 1, out=make().resize_(0))
        assert out.numel() == 4000 and out.eq(2).all()
        other = make()
        other.set_(torch.zeros(7))
        assert other.tolist() == [0.0] * 7
        assert add_one(grown).sum() == 10000


def test_free_shared_memory_goes_back_when_the_program_wants_it() -> None:
    with isopool.Pool(1) as pool:
        tensor = pool.empty([5_000_000], torch.float32).fill_(1)
        assert pool.statistics().input_bytes >= 20_000_000
        del tensor
        assert pool.statistics().input_largest_free_block >= 20_000_000
        assert isopool.trim_shared_memory() >= 20_000_000
        assert pool.statistics().input_bytes < 20_000_000


def test_statistics_count_calls_and_restarts() -> None:
    with isopool.Pool(1) as pool:
        model = pool.load(abs)
        for _ in range(5):
            model(-1)
        [worker] = pool.statistics().workers
        [served] = pool.statistics().models
        assert worker.state == "serving" and worker.process_id > 0 and worker.models == [model.name]
        assert (served.answered, served.failed) == (5, 0) and served.latency(50) > 0
        assert f"<td>{worker.process_id}</td>" in pool._repr_html_()
        with pytest.raises(isopool.WorkerLost):
            pool.load(lambda: os.kill(os.getpid(), signal.SIGKILL))()
        model(-1)
        assert pool.statistics().workers_replaced == 1


def test_ctrl_c_ends_a_call_of_a_model(tmp_path: pathlib.Path) -> None:
    program = """
        with isopool.Pool(1) as pool:
            model = pool.load(hang)
            threading.Thread(target=interrupt, args=(sys.argv[1],)).start()
            try:
                model(sys.argv[1])
            except KeyboardInterrupt:
                print("interrupted", pool.load(abs)(-3))
    """
    run = run_program(program, tmp_path / "mark", before=INTERRUPTED)
    assert run.stdout == "interrupted 3\n", run.stderr


def test_a_signal_that_is_handled_does_not_end_a_call(pool: isopool.Pool, tmp_path: pathlib.Path) -> None:
    handled: list[Any] = []

    def wait_for(path: str) -> str:
        while not os.path.exists(path):
            time.sleep(0.005)
        return "done"

    def handle(*_: Any) -> None:
        handled.append(1)
        (tmp_path / "go").touch()

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        assert pool.load(wait_for)(str(tmp_path / "go")) == "done"
    finally:
        signal.signal(signal.SIGALRM, before)
    assert handled == [1]


def test_a_result_with_bytes_that_are_no_text_is_an_error_that_says_what_to_return() -> None:
    with isopool.Pool(1) as pool:
        answer = pool.load(lambda text: [text.encode(), bytes([0xFF])] if text else b"text")
        assert answer("") == "text"
        with pytest.raises(isopool.Error, match=r"not UTF-8.*return a tensor of dtype uint8"):
            answer("text")
        with pytest.raises(isopool.Error, match="not UTF-8"):
            asyncio.run(answer.aio("text"))
