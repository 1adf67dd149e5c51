"""A program under attack lives on whatever its supervisor does."""

import os
import pathlib
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator

import pytest

PATIENCE = 60
COMMAND = [os.environ["ISOPOOL_CHAOS_PROGRAM"], "--number", "1", "--seed", "1", "--plain"]


class Program:
    """One that calls by a private supervisor with two workers."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._mark = f"ISOPOOL_TEST_MARK={uuid.uuid4()}"
        files = {"--history": folder / "history", "--effects": folder / "effects"}
        for each in files.values():
            each.touch()
        words = [str(word) for pair in files.items() for word in pair]
        name, value = self._mark.split("=")
        self._process = subprocess.Popen(
            [*COMMAND, "--package", os.environ["CHAOS_PACKAGE"], *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, name: value, "ISOPOOL_WORKER": os.environ["ISOPOOL_PLAIN_WORKER"]},
        )

    def ask(self, question: str) -> str:
        assert self._process.stdin and self._process.stdout
        print(question, file=self._process.stdin, flush=True)
        return self._process.stdout.readline().strip()

    def wait_for_whole_pool(self) -> int:
        """Returns the process of its supervisor."""
        end = time.monotonic() + PATIENCE
        while not (self.ask("books").startswith("books 2 2 ") and (supervisor := self._supervisor())):
            assert self._process.poll() is None and time.monotonic() < end
            time.sleep(0.01)
        return supervisor

    def kill(self, supervisor: int) -> None:
        os.kill(supervisor, signal.SIGKILL)
        end = time.monotonic() + PATIENCE
        while self._supervisor() == supervisor:
            assert time.monotonic() < end
            time.sleep(0.001)

    def end(self) -> int:
        self._process.communicate("end\n", timeout=PATIENCE)
        return self._process.returncode

    def _supervisor(self) -> int | None:
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                marked = self._mark.encode() in (folder / "environ").read_bytes().split(b"\0")
                if marked and (folder / "comm").read_text() == "isopoold\n":
                    return int(folder.name)
            except OSError:
                continue  # it has ended
        return None


@pytest.fixture
def program(tmp_path: pathlib.Path) -> Iterator[Program]:
    running = Program(tmp_path)
    yield running
    assert running.end() == 0


def test_a_supervisor_that_dies_while_the_program_rests_is_replaced(program: Program) -> None:
    first = program.wait_for_whole_pool()
    assert program.ask("rest") == "resting"
    program.kill(first)
    assert program.wait_for_whole_pool() != first
