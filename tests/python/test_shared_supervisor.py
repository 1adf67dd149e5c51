"""A pool on a shared supervisor, from Python."""

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import isopool
import pytest
from multipy.runtime import InterpreterManager
from programs import serving


@pytest.fixture
def supervisor(tmp_path: pathlib.Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    address = str(tmp_path / "socket")
    with serving(address) as process:
        yield address, process


def process_id(pool: InterpreterManager) -> int:
    return pool[0].global_("os", "getpid")().deref()


def test_two_pools_on_one_address_share_its_workers(
    supervisor: tuple[str, subprocess.Popen[bytes]],
) -> None:
    address, _ = supervisor
    first = InterpreterManager(2, address=address)
    second = InterpreterManager(1, address)
    assert len(first) == 2
    assert process_id(first) == process_id(second)
    del first
    assert process_id(second) > 0


def test_the_variable_attaches_a_pool_that_was_given_no_address(
    supervisor: tuple[str, subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, _ = supervisor
    there = process_id(InterpreterManager(1, address))
    monkeypatch.setenv("ISOPOOL_SOCKET", address)
    assert process_id(InterpreterManager(1)) == there


def test_an_address_that_nobody_serves_says_what_to_do(tmp_path: pathlib.Path) -> None:
    with pytest.raises(isopool.SupervisorLost, match="isopoold --listen"):
        InterpreterManager(1, address=str(tmp_path / "nobody"))


def test_a_supervisor_that_is_told_to_end_drains_and_ends(
    supervisor: tuple[str, subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ISOPOOL_RECONNECT", "0")
    address, process = supervisor
    pool = InterpreterManager(1, address)
    assert process_id(pool) > 0
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 0
    with pytest.raises(isopool.SupervisorLost):
        process_id(pool)


PATIENCE = 20.0


def test_a_relative_address_is_that_of_the_folder_where_the_pool_was_made(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with serving(str(tmp_path / "socket")) as process:
        pool = InterpreterManager(1, address="socket")
        monkeypatch.chdir("/")
        former = process_id(pool)
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
    with serving(str(tmp_path / "socket")):
        assert process_id(pool) != former


class Counter:
    """Keeps its count in the worker: a session sees that it still has the same one."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> tuple[int, int]:
        self.count += 1
        return os.getpid(), self.count


def starts_threads() -> int:
    for _ in range(3):
        threading.Thread(target=lambda: threading.Event().wait(), daemon=True).start()
    return os.getpid()


def until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
    return True


def test_a_worker_with_threads_of_a_program_that_has_left_is_replaced_and_keeps_its_sessions(
    supervisor: tuple[str, subprocess.Popen[bytes]],
) -> None:
    address, _ = supervisor
    with isopool.Pool(1, address=address) as other:
        model = other.load(Counter())
        with model.session() as session:
            worker, _ = session()
            with isopool.Pool(1, address=address) as leaves:
                assert leaves.load(starts_threads)() == worker
            assert until(lambda: model()[0] != worker)
            process, count = session()
            assert process == worker and count > 1
        assert model()[0] != worker


def test_a_worker_keeps_threads_of_a_program_that_is_attached(
    supervisor: tuple[str, subprocess.Popen[bytes]],
) -> None:
    address, _ = supervisor
    with isopool.Pool(1, address=address) as pool:
        model = pool.load(starts_threads)
        worker = model()
        with isopool.Pool(1, address=address) as leaves:
            assert leaves.load(os.getpid)() == worker
        # The worker looks for threads a second after the other program has left.
        end = time.monotonic() + 2
        while time.monotonic() < end:
            assert model() == worker


def wait_for(path: str) -> int:
    pathlib.Path(path + ".started").touch()
    while not os.path.exists(path):
        time.sleep(0.01)
    return os.getpid()


def test_a_load_that_waits_for_a_worker_goes_on_with_the_next_supervisor(tmp_path: pathlib.Path) -> None:
    address = str(tmp_path / "socket")
    end = tmp_path / "end"

    with (
        serving(address, "--drain-timeout", "1s") as first,
        isopool.Pool(1, address=address) as busy,
        isopool.Pool(1, address=address) as pool,
    ):
        running = busy.load(wait_for).call_async((str(end),), {}, lambda value, error: None)
        assert until((tmp_path / "end.started").exists)
        loaded: list[int] = []
        load = threading.Thread(target=lambda: loaded.append(pool.load(os.getpid)()))
        load.start()
        # Its session is there: the load is in the line behind the call that runs, or soon will be.
        assert until(lambda: pool.statistics().workers[0].sessions > 0)
        first.send_signal(signal.SIGTERM)
        assert first.wait(timeout=PATIENCE) == 0
        with serving(address):
            load.join(PATIENCE)
            assert loaded
        del running


SCALED = """
import os, pickle, subprocess, sys
import cloudpickle, isopool

class Net:
    scale = 1

    def __call__(self, value):
        return value * self.scale

def scaled(value):
    return Net()(value)

def made_in_a_function():
    class Net:
        scale = 1

        def __call__(self, value):
            return value * self.scale

    return Net

Local = made_in_a_function()

def scaled_locally(value):
    return Local()(value)

kept = []

def calls(way, pool):
    kept.append(pool)
    if way == "executor":
        executor = isopool.Executor(pool=pool)
        return lambda: executor.submit(scaled, 10).result()
    if way == "local":
        executor = isopool.Executor(pool=pool)
        return lambda: executor.submit(scaled_locally, 10).result()
    model = pool.load(Net())
    return lambda: model(10)

def child(way, address, scale, file):
    if way == "file":
        net = cloudpickle.loads(file)
        type(net).scale = scale
        kept.append(isopool.Pool(1, address=address))
        model = kept[-1].load(net)
        return lambda: model(10)
    Net.scale = Local.scale = scale
    return calls(way, isopool.Pool(1, address=address))

way, address = sys.argv[1:]
file = cloudpickle.dumps(Net())
with isopool.Pool(1, address=address) as pool:
    assert calls(way, pool)() == 10
pipes = []
for scale in (2, 3):
    go, told = os.pipe(), os.pipe()
    if os.fork() == 0:
        call = child(way, address, scale, file)
        for _ in range(2):
            os.write(told[1], bytes([call()]))
            os.read(go[0], 1)
        os._exit(0)
    pipes.append((go[1], told[0]))
    print(os.read(told[0], 1)[0])
for go, told in pipes:
    os.write(go, b"x")
    print(os.read(told, 1)[0])
    os.write(go, b"x")
"""


@pytest.mark.parametrize("way", ["executor", "local", "model", "file"])
def test_forked_programs_have_classes_of_their_own_in_one_worker(
    supervisor: tuple[str, subprocess.Popen[bytes]], way: str, tmp_path: pathlib.Path
) -> None:
    script = tmp_path / "scaled.py"
    script.write_text(SCALED)
    ran = subprocess.run([sys.executable, script, way, supervisor[0]], stdout=subprocess.PIPE, text=True, timeout=60)
    assert ran.stdout.split() == ["20", "30", "20", "30"]
