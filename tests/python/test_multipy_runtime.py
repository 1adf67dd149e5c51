"""multipy.runtime from Python: a pool, its sessions, their objects, the error of each misuse."""

import gc
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator

import isopool
import multipy
import pytest
import torch
from multipy.runtime import InterpreterManager
from programs import run_program


@pytest.fixture(scope="module")
def pool() -> Iterator[InterpreterManager]:
    pool = InterpreterManager(2)
    yield pool
    del pool


def process_id(session: isopool.InterpreterSession) -> int:
    return session.global_("os", "getpid")().deref()


def test_a_pool_has_as_many_workers_as_asked_for_each_a_process(pool: InterpreterManager) -> None:
    assert len(pool) == 2
    processes = {process_id(session) for session in pool}
    assert len(processes) == 2
    assert os.getpid() not in processes
    assert process_id(pool[-1]) == process_id(pool[1])
    with pytest.raises(IndexError):
        pool[2]


def test_a_pool_of_no_size_or_a_wrong_one_is_refused() -> None:
    for count in (0, -1, 10**6):
        with pytest.raises((ValueError, isopool.Error)):
            InterpreterManager(count)


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 2.5, "grün", [1, 2], [[1.5]], (1, "a"), {"a": 1}, {"a": [torch.ones(2)]}],
    ids=repr,
)
def test_values_come_back_as_they_went(pool: InterpreterManager, value: object) -> None:
    copy = pool.acquire_one().global_("copy", "copy")
    assert repr(copy(value).deref()) == repr(value)


def test_calls_take_arguments_by_name(pool: InterpreterManager) -> None:
    session = pool.acquire_one()
    assert session.global_("builtins", "dict")(a=1, b=2).deref() == {"a": 1, "b": 2}
    assert session.global_("builtins", "int")("ff", base=16).deref() == 255


def test_attributes_and_calls_chain(pool: InterpreterManager) -> None:
    path = pool.acquire_one().global_("pathlib", "Path")("/usr/share")
    assert path.parent.name.deref() == "usr"
    assert path.joinpath("x").as_posix().deref() == "/usr/share/x"
    assert not hasattr(path, "no_such_attribute")
    with pytest.raises(AttributeError, match="no_such_attribute"):
        path.no_such_attribute


def test_objects_are_arguments_beside_values(pool: InterpreterManager) -> None:
    session = pool.acquire_one()
    numbers = session.global_("builtins", "range")(4)
    assert session.global_("builtins", "sum")(numbers, 10).deref() == 16
    with pytest.raises(TypeError, match="named"):
        session.global_("builtins", "sum")(numbers, start=10)
    with pytest.raises(TypeError, match="positional"):
        session.global_("builtins", "dict")(a=numbers)
    with pytest.raises(isopool.Error, match="another worker"):
        pool[0].global_("builtins", "list")(pool[1].global_("builtins", "range")(4))


def test_tensors_travel_detached(pool: InterpreterManager) -> None:
    weight = torch.ones(1000, requires_grad=True)
    session = pool.acquire_one()
    result = session.global_("torch", "add")(weight * 2, 1.0).deref()
    assert torch.equal(result, torch.full((1000,), 3.0))
    assert not result.requires_grad
    pair = session.global_("copy", "copy")([weight * 2, weight]).deref()
    assert not any(each.requires_grad for each in pair)


def test_a_tensor_outlives_its_pool() -> None:
    pool = InterpreterManager(1)
    tensor = pool.acquire_one().global_("torch", "ones")([5000]).deref()
    del pool
    gc.collect()
    assert tensor.add_(1).sum().item() == 10000


def test_a_value_without_a_type_is_an_error_of_the_caller(pool: InterpreterManager) -> None:
    with pytest.raises(RuntimeError, match=r"^args\[0\] \(of type object\) can't be passed"):
        pool.acquire_one().global_("copy", "copy")(object())
    with pytest.raises(RuntimeError, match="infer type"):
        pool.acquire_one().global_("builtins", "object")().deref()


def test_a_python_error_has_its_type_and_the_workers_traceback(pool: InterpreterManager) -> None:
    load = pool.acquire_one().global_("json", "loads")
    with pytest.raises(isopool.RemoteError) as caught:
        load("{")
    error = caught.value
    assert isinstance(error, RuntimeError)
    assert error.python_type == "json.decoder.JSONDecodeError"
    assert "Expecting property name" in error.message
    assert "in raw_decode" in error.traceback
    assert error.worker.startswith("worker ")
    assert any("in raw_decode" in note for note in error.__notes__)


def test_a_closed_session_raises_and_its_objects_go_on(pool: InterpreterManager) -> None:
    with pool.acquire_one() as session:
        sqrt = session.global_("math", "sqrt")
    with pytest.raises(isopool.Error, match="closed"):
        session.global_("math", "sqrt")
    del session
    gc.collect()
    assert sqrt(9.0).deref() == 3.0


def test_what_outlives_its_pool_raises() -> None:
    pool = InterpreterManager(1)
    session = pool.acquire_one()
    sqrt = session.global_("math", "sqrt")
    three = sqrt(9.0)
    del pool
    gc.collect()
    misuses: list[Callable[[], object]] = [
        lambda: session.global_("math", "pi"),
        lambda: sqrt(9.0),
        lambda: sqrt.__name__,
        lambda: three.deref(),
    ]
    for misuse in misuses:
        with pytest.raises(isopool.Error):
            misuse()


def test_a_killed_worker_is_an_exception_and_is_replaced() -> None:
    pool = InterpreterManager(1)
    session = pool[0]
    victim = process_id(session)
    sleep = session.global_("time", "sleep")
    timer = threading.Timer(0.3, os.kill, (victim, signal.SIGKILL))
    timer.start()
    with pytest.raises(isopool.WorkerLost) as caught:
        sleep(60.0)
    timer.join()
    assert caught.value.process_id == victim
    assert caught.value.signal == signal.SIGKILL
    assert caught.value.started
    with pytest.raises(isopool.WorkerLost):
        sleep(0.0)
    assert process_id(pool[0]) not in (victim, os.getpid())


def test_a_crash_leaves_its_crash_log_under_the_old_name_too() -> None:
    pool = InterpreterManager(1)
    crash = pool[0].global_("faulthandler", "_sigsegv")
    with pytest.raises(isopool.WorkerLost) as caught:
        crash()
    assert "Segmentation fault" in caught.value.crash_log
    with pytest.warns(DeprecationWarning, match="crash_log"):
        assert caught.value.last_words == caught.value.crash_log


def test_threads_call_at_once_because_waiting_holds_no_lock(
    pool: InterpreterManager, tmp_path: pathlib.Path
) -> None:
    # Each worker waits for the other one: if calls held a lock, neither call would end.
    script = tmp_path / "meet.py"
    script.write_text(
        textwrap.dedent(
            """
            import pathlib, time
            pathlib.Path(mine).touch()
            end = time.monotonic() + 30
            while not pathlib.Path(other).exists() and time.monotonic() < end:
                time.sleep(0.001)
            met = pathlib.Path(other).exists()
            """
        )
    )
    answers: list[bool] = []

    def meet(index: int) -> None:
        files = {"mine": str(tmp_path / str(index)), "other": str(tmp_path / str(1 - index))}
        names = pool[index].global_("runpy", "run_path")(str(script), files)
        answers.append(names.get("met").deref())

    threads = [threading.Thread(target=meet, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [True, True]


def test_many_threads_share_a_pool(pool: InterpreterManager) -> None:
    wrong: list[object] = []

    def work(number: int) -> None:
        for turn in range(30):
            answer = pool.acquire_one().global_("operator", "mul")(number, turn).deref()
            if answer != number * turn:
                wrong.append(answer)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_forked_child_is_refused_and_ends_in_peace() -> None:
    result = run_program(
        """
        import os, sys
        from multipy.runtime import InterpreterManager
        pool = InterpreterManager(1)
        session = pool.acquire_one()
        sqrt = session.global_("math", "sqrt")
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            for misuse in (pool.acquire_one, lambda: sqrt(4.0), lambda: session.global_("os", "x")):
                try:
                    misuse()
                    print("no error")
                except RuntimeError as error:
                    print("refused" if "fork" in str(error) else error)
            del sqrt, session, pool
            sys.exit(0)
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print("parent", sqrt(4.0).deref())
        """
    )
    expected = [*["refused"] * 3, "child 0", "parent 2.0"]
    assert result.stdout.splitlines() == expected, result.stderr


@pytest.mark.parametrize("order", ["pool first", "object first", "all left to the end"])
def test_a_program_ends_in_any_order_and_leaves_no_process(order: str) -> None:
    deletion = {"pool first": "del pool", "object first": "del sqrt, session, pool"}.get(order, "")
    result = run_program(
        f"""
        from multipy.runtime import InterpreterManager
        pool = InterpreterManager(1)
        session = pool.acquire_one()
        sqrt = session.global_("math", "sqrt")
        print(session.global_("os", "getpid")().deref())
        {deletion}
        """
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    worker = pathlib.Path("/proc", result.stdout.strip())
    end = time.monotonic() + 5
    while worker.exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert not worker.exists()


def test_there_is_one_libtorch_and_one_libpython_in_the_process(pool: InterpreterManager) -> None:
    maps = pathlib.Path("/proc/self/maps").read_text()
    for library in ("libtorch_cpu", "libtorch_python", "libc10", "libisopool"):
        files = set(re.findall(rf"/\S*/{library}\.so\S*", maps))
        assert len(files) == 1, files
    assert len(set(re.findall(r"/\S*/libpython3\S*", maps))) <= 1
    # These two can only differ if there are two libtorchs.
    assert pool.acquire_one().global_("torch", "__version__").split("+").deref()[0] == (
        torch.__version__.split("+")[0]
    )


def test_workers_have_the_programs_modules(pool: InterpreterManager) -> None:
    assert pool.acquire_one().global_("sys", "prefix").deref() == sys.prefix


def test_the_packages_have_a_version() -> None:
    assert multipy.__version__ == isopool.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", multipy.__version__)


def import_built_with(folder: pathlib.Path, field: str, version: str) -> subprocess.CompletedProcess[str]:
    """Imports an isopool that says that it was built with another version."""
    source = pathlib.Path(isopool.__file__).parent
    copy = folder / "isopool"
    copy.mkdir()
    for file in source.iterdir():
        if file.name != "__pycache__":
            (copy / file.name).symlink_to(file)
    (copy / "_build.py").unlink()
    build = (source / "_build.py").read_text()
    (copy / "_build.py").write_text(re.sub(rf'{field} = "[^"]*"', f'{field} = "{version}"', build))
    return subprocess.run(
        [sys.executable, "-c", "from isopool import _build"],
        env={**os.environ, "PYTHONPATH": str(folder)}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("field", "remedy"),
    [("TORCH_SERIES", r"-m pip install 'torch==2\.99\.\*', or build"), ("PYTHON_VERSION", r"2\.99.*: build")],
)
def test_another_torch_or_python_is_refused_with_what_to_do(
    field: str, remedy: str, tmp_path: pathlib.Path
) -> None:
    result = import_built_with(tmp_path, field, "2.99")
    assert result.returncode == 1
    assert re.search(rf"ImportError: isopool was built .*{remedy}", result.stderr), result.stderr


def test_another_version_of_the_same_series_of_torch_is_accepted(tmp_path: pathlib.Path) -> None:
    series = ".".join(torch.__version__.split(".")[:2])
    result = import_built_with(tmp_path, "TORCH_VERSION", f"{series}.99")
    assert result.returncode == 0, result.stderr


def test_the_module_says_where_cmake_finds_isopool() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "isopool", "--cmake-prefix"], check=True, stdout=subprocess.PIPE, text=True
    )
    prefix = pathlib.Path(told.stdout.rstrip("\n"))
    places = [prefix, prefix / "lib" / "cmake" / "isopool"]
    assert any((place / "isopool-config.cmake").is_file() for place in places), prefix
