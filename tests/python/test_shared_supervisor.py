"""A pool on a shared supervisor, from Python."""

import os
import pathlib
import signal
import subprocess
from collections.abc import Iterator

import isopool
import pytest
from multipy.runtime import InterpreterManager


@pytest.fixture
def supervisor(tmp_path: pathlib.Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    address = str(tmp_path / "socket")
    words = [os.environ["ISOPOOL_SUPERVISOR"], "--listen", address, "--workers", "1"]
    with subprocess.Popen(words) as process:
        while not os.path.exists(address) and process.poll() is None:
            pass
        yield address, process
        process.kill()


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
