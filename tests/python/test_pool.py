"""isopool.Pool and isopool.Model: models of every origin, called from Python."""

import datetime
import json
import logging
import os
import pathlib
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import isopool
import pytest
import torch
from programs import PATIENCE, run_program
from torch.package import PackageExporter

SOURCE = """
import os
import time

import torch


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([[2.0, 0.0], [0.0, 3.0]]))

    def forward(self, rows, scale=1.0, mask=None):
        result = rows @ self.weight * scale
        return result if mask is None else result * mask

    def process(self):
        return os.getpid()

    def same(self, value):
        return value

    def sleep(self, seconds):
        time.sleep(seconds)
        return seconds

    def die(self):
        os.kill(os.getpid(), 11)

    def fail(self):
        raise KeyError("no such row")

    def say(self, text):
        print(text, flush=True)

    def fail_later(self):
        raise KeyError("no such row")
        yield

    def fail_with_own_error(self):
        raise OwnError(7)

    def fail_with_evil_pickle(self, path):
        class Evil(ValueError):
            def __reduce__(self):
                return os.mkdir, (path,)

        raise Evil("evil")


class OwnError(Exception):
    pass
"""
INFORMATION = {
    "version": "3",
    "description": "scales rows",
    "inputs": [{"name": "rows", "dtype": "float32", "shape": [None, 2]}],
    "outputs": [{"name": "scaled", "dtype": "float32", "shape": [None, 2]}],
}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("models")
    (folder / "layer_source.py").write_text(SOURCE)
    sys.path.insert(0, str(folder))
    import layer_source  # type: ignore[import-not-found]

    sys.path.remove(str(folder))
    path = folder / "layer.pt"
    with PackageExporter(path) as exporter:
        exporter.intern("layer_source")
        exporter.save_pickle("model", "model.pkl", layer_source.Layer())
        exporter.save_text("model", "model_info.json", json.dumps(INFORMATION))
    return path


@pytest.fixture(scope="module")
def pool() -> Iterator[isopool.Pool]:
    with isopool.Pool(2, threads_per_worker=1) as pool:
        yield pool


@pytest.fixture(scope="module")
def model(pool: isopool.Pool, package: pathlib.Path) -> isopool.Model:
    return pool.load(package, pickle=("model", "model.pkl"))


@pytest.mark.parametrize("make", [lambda part: (part, part), lambda part: [part, part]])
@pytest.mark.parametrize("depth", [26, 30, 60])
def test_arguments_whose_parts_occur_again_and_again_are_refused_at_once(
    model: isopool.Model, make: Callable[[object], object], depth: int
) -> None:
    value: object = 1
    for _ in range(depth):
        value = make(value)
    began = time.monotonic()
    with pytest.raises(isopool.Error, match="occur in it again and again"):
        model(value)
    assert time.monotonic() - began < 5


def test_an_argument_that_contains_itself_is_refused(model: isopool.Model) -> None:
    value: list[object] = []
    value.append((value, value))
    with pytest.raises(isopool.Error, match="contains itself"):
        model(value)


def test_a_call_has_arguments_by_position_and_by_name(model: isopool.Model) -> None:
    rows = torch.tensor([[1.0, 1.0], [2.0, 2.0]])
    assert torch.equal(model(rows), torch.tensor([[2.0, 3.0], [4.0, 6.0]]))
    assert torch.equal(model(rows, 2), torch.tensor([[4.0, 6.0], [8.0, 12.0]]))
    masked = model(rows, mask=torch.tensor([0.0, 1.0]))
    assert torch.equal(masked, torch.tensor([[0.0, 3.0], [0.0, 6.0]]))


@pytest.mark.parametrize(
    "value",
    [None, True, False, 0, -1, 2**62, 2.5, float("inf"), "", "grün", "a\0b", [1, 2], {"a": 1.5}],
    ids=repr,
)
def test_values_come_back_as_they_went(model: isopool.Model, value: object) -> None:
    result = model.method("same")(value)
    assert type(result) is type(value)
    assert result == value


def test_a_parameter_is_sent_without_its_graph(model: isopool.Model) -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    result = model.method("same")(parameter)
    assert torch.equal(result, torch.ones(3))
    assert not result.requires_grad


@pytest.mark.parametrize("value", [2**70, "\ud800", object()], ids=["number", "text", "object"])
def test_a_value_that_can_not_be_sent_is_refused(model: isopool.Model, value: object) -> None:
    with pytest.raises(isopool.Error, match="can't be passed"):
        model.method("same")(value)
    assert model.method("same")(1) == 1


def test_calls_of_several_threads_run_in_several_workers(model: isopool.Model) -> None:
    def call() -> None:
        processes.add(model.method("process")())
        meeting.wait(30)
        model.method("sleep")(0.05)
        processes.add(model.method("process")())

    processes: set[int] = set()
    meeting = threading.Barrier(4)
    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(processes) == 2
    assert os.getpid() not in processes


def test_call_on_all_has_a_result_of_each_worker(
    pool: isopool.Pool, model: isopool.Model
) -> None:
    assert len(pool) == 2
    assert len(set(model.method("process").call_on_all())) == 2


@pytest.mark.parametrize("timeout", [0.05, datetime.timedelta(milliseconds=50)], ids=repr)
def test_a_timeout_ends_the_call_and_the_pool_goes_on(
    model: isopool.Model, timeout: float | datetime.timedelta
) -> None:
    begin = time.monotonic()
    with pytest.raises(isopool.DeadlineExceeded) as raised:
        model.with_options(timeout=timeout).method("sleep")(60.0)
    assert raised.value.started
    assert time.monotonic() - begin < 30
    assert model.method("same")(7) == 7


def test_options_of_a_call_belong_to_the_model_that_has_them(model: isopool.Model) -> None:
    hurried = model.method("sleep").with_options(timeout=0)
    with pytest.raises(isopool.DeadlineExceeded):
        hurried(0.0)
    assert model.method("sleep")(0.0) == 0.0
    deep: object = 1
    for _ in range(300000):
        deep = [deep]
    for wrong in (deep, "\ud800"):
        with pytest.raises(TypeError, match="timeout is a number of seconds or a timedelta, not "):
            model.with_options(timeout=wrong)
    assert model.with_options(timeout=10**400).method("same")(1) == 1
    with pytest.raises(TypeError, match="timeout is a number of seconds"):
        model.with_options(timeout="soon")


def test_a_death_is_the_error_of_its_call_only(model: isopool.Model) -> None:
    with pytest.raises(isopool.WorkerLost) as raised:
        model.method("die")()
    assert raised.value.signal == signal.SIGSEGV
    assert model.method("same")("next") == "next"


def test_a_logger_gets_what_workers_print_and_how_they_die(package: pathlib.Path) -> None:
    events: queue.Queue[tuple[int, str]] = queue.Queue()

    def wait_for(level: int, text: str) -> None:
        while True:
            event = events.get(timeout=PATIENCE)
            if event[0] == level and text in event[1]:
                return

    def log(level: int, text: str) -> None:
        events.put((level, text))

    with isopool.Pool(1, logger=log) as pool:
        model = pool.load(package, pickle=("model", "model.pkl"))
        model.method("say")("good morning")
        wait_for(logging.INFO, "good morning")
        with pytest.raises(isopool.WorkerLost):
            model.method("die")()
        wait_for(logging.WARNING, "died by signal 11")
    assert isopool.PoolOptions(logger=log).logger is log
    assert isopool.PoolOptions().logger is None


def test_an_exception_has_its_own_type_and_the_traceback_of_the_worker(model: isopool.Model) -> None:
    with pytest.raises(KeyError) as raised:
        model.method("fail")()
    assert raised.value.args == ("no such row",)
    cause = raised.value.__cause__
    assert isinstance(cause, isopool.RemoteError)
    assert cause.python_type == "KeyError"
    assert "in fail" in cause.traceback


def test_an_exception_of_a_session_and_of_a_stream_has_its_own_type(model: isopool.Model) -> None:
    with model.session() as session, pytest.raises(KeyError, match="no such row"):
        session.call_method("fail")
    with pytest.raises(KeyError, match="no such row"):
        list(model.method("fail_later").stream())


def test_an_exception_of_a_class_of_the_package_only_is_a_remote_error(model: isopool.Model) -> None:
    with pytest.raises(isopool.RemoteError, match="OwnError: 7") as raised:
        model.method("fail_with_own_error")()
    assert raised.value.python_type.endswith("OwnError")


def test_an_exception_runs_no_code_of_the_workers_choice(model: isopool.Model, tmp_path: pathlib.Path) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(isopool.RemoteError, match="Evil: evil"):
        model.method("fail_with_evil_pickle")(str(mark))
    assert not mark.exists()


def test_info_of_a_package_is_what_its_resource_states(
    model: isopool.Model, package: pathlib.Path
) -> None:
    info = model.info()
    assert info.name == model.name == "layer.pt:model/model.pkl"
    assert (info.format, info.file) == ("torch.package", str(package))
    assert info.bytes == package.stat().st_size
    assert (info.version, info.description) == ("3", "scales rows")
    assert info.python_version.startswith(f"3.{sys.version_info.minor}")
    assert "torch" in info.extern_modules
    [rows] = info.inputs
    assert (rows.name, rows.type, rows.shape) == ("rows", "float32", [-1, 2])
    assert repr(info).endswith("(rows: float32[?, 2]) -> (scaled: float32[?, 2])>")


def test_a_torchscript_file_needs_no_pickle(pool: isopool.Pool, tmp_path: pathlib.Path) -> None:
    torch.jit.script(torch.nn.ReLU()).save(str(tmp_path / "relu.ts"))
    model = pool.load(str(tmp_path / "relu.ts"))
    assert torch.equal(model(torch.tensor([-1.0, 2.0])), torch.tensor([0.0, 2.0]))
    assert model.info().format == "torchscript"


def test_what_can_not_be_loaded_is_refused(
    pool: isopool.Pool, package: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(RuntimeError, match=r"\\xff\.pt"):  # a file's name need not be UTF-8
        pool.load(os.fsdecode(b"/missing/\xff.pt"))
    with pytest.raises(RuntimeError, match="missing.pt"):
        pool.load(tmp_path / "missing.pt")
    with pytest.raises(isopool.RemoteError):
        pool.load(package, pickle=("model", "other.pkl"))
    with pytest.raises(TypeError, match="pass one"):
        pool.load(package, pickle=("model", "model.pkl"), name="small")


def test_warm_up_is_done_in_every_worker(model: isopool.Model) -> None:
    model.warm_up(torch.zeros(1, 2))
    model.unload()
    assert torch.equal(model(torch.ones(1, 2)), torch.tensor([[2.0, 3.0]]))


def test_options_are_fields_and_are_reported_with_their_source() -> None:
    options = isopool.PoolOptions(spares=3, sandbox="strict", quarantine=1.5)
    assert (options.spares, options.sandbox) == (3, "strict")
    assert options.quarantine == 1.5
    options.quarantine = datetime.timedelta(minutes=1)
    assert options.quarantine == 60
    with pytest.raises(TypeError, match="PoolOptions has no field spare; the nearest is spares"):
        isopool.PoolOptions(spare=3)
    with pytest.raises(TypeError, match="worker_memory can't be '1GiB', of type str: it is of type int"):
        isopool.Pool(1, worker_memory="1GiB")
    with pytest.raises(ValueError, match="none, default or strict"):
        isopool.Pool(1, sandbox="tight")
    with pytest.raises(ValueError, match="at least one worker"):
        isopool.Pool(0)
    with isopool.Pool(1, spares=2, recycle=isopool.Recycling(calls=1000)) as pool:
        settings = {each.name: each for each in pool.options()}
    assert (settings["spares"].value, settings["spares"].source) == ("2", "program")
    assert settings["recycle.calls"].value == "1000"


def test_a_closed_pool_refuses_and_its_results_stay(package: pathlib.Path) -> None:
    with isopool.Pool(1) as pool:
        model = pool.load(package, pickle=("model", "model.pkl"))
        result = model(torch.ones(1000, 2))
    with pytest.raises(isopool.Error, match="the pool is closed"):
        pool.load(package, pickle=("model", "model.pkl"))
    with pytest.raises(isopool.Error):
        model(torch.ones(1, 2))
    pool.close()
    assert torch.equal(result, torch.tensor([2.0, 3.0]).expand(1000, 2))


def test_a_program_that_keeps_its_pool_until_its_end_ends(package: pathlib.Path) -> None:
    ended = run_program(
        """
        import sys
        import isopool
        pool = isopool.Pool(1)
        model = pool.load(sys.argv[1], pickle=("model", "model.pkl"))
        print(model.method("same")("alive"))
        """,
        package,
        patience=120,
    )
    assert (ended.returncode, ended.stdout) == (0, "alive\n"), ended.stderr


def test_the_import_leaves_the_programs_environment_alone() -> None:
    ended = run_program(
        """
        import os
        before = dict(os.environ)
        import isopool
        with isopool.Pool(1) as pool:
            pool.load(abs)(-1)
        assert dict(os.environ) == before
        """,
        patience=120,
    )
    assert ended.returncode == 0, ended.stderr


def test_workers_have_the_modules_of_this_interpreter_or_of_the_one_that_is_named() -> None:
    with isopool.Pool(1) as pool:
        settings = {each.name: each.value for each in pool.options()}
    assert settings["python"] == sys.executable
    with pytest.raises(isopool.SupervisorLost, match="/nonexistent/python"):
        isopool.Pool(1, python="/nonexistent/python")
