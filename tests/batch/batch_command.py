# SPDX-License-Identifier: BSD-3-Clause
"""The command `isopool batch` as a process, and a folder with user code, inputs and results. For test_jobs_*.py."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import textwrap
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

ISOPOOL = os.environ["ISOPOOL_COMMAND"]

# A limit for each wait: generous, because other programs may use the machine at the same time.
LIMIT = 240.0

# The environment of each process of a job has it: its supervisor is no child of the driver.
MARK = "ISOPOOL_TEST_JOB"

Row = dict[str, Any]

# What an item does to its worker. Each item leaves a line in the file `trace` when it begins and when it has its
# result, and waits for its gate, a FIFO in `gates` that has its ID, if there is one.
MISDEEDS = '''
import ctypes, os, time

HERE = os.path.dirname(os.path.abspath(__file__))

def trace(word, row):
    with open(os.path.join(HERE, "trace"), "ab", buffering=0) as file:
        file.write(f"{word} {row['id']} {os.getpid()}\\n".encode())

def misbehave(bad):
    if bad == "segfault":
        ctypes.string_at(0)
    elif bad == "exit":
        os._exit(7)
    elif bad == "raise":
        raise ValueError("this item is wrong")
    elif bad == "memory":
        kept = bytearray(4 << 30)
    elif bad == "hang":
        while True:
            time.sleep(3600)

def square(row):
    trace("begin", row)
    gate = os.path.join(HERE, "gates", str(row["id"]))
    if os.path.exists(gate):
        open(gate, "rb").close()
    misbehave(row.get("bad"))
    time.sleep(row.get("seconds", 0))
    trace("end", row)
    return {"square": row["n"] ** 2}

def squares(rows):
    return [square(row) for row in rows]
'''


class Ended:
    """A command that has ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def last_line(self) -> str:
        return self.out.splitlines()[-1]

    @property
    def events(self) -> list[Row]:
        return [json.loads(line) for line in self.out.splitlines()]

    def __repr__(self) -> str:
        return f"exit code {self.code}\n{self.out}\n{self.err}"


class Running:
    """A command that runs, the leader of a process group as in a shell. Kill it and its pool by the mark."""

    def __init__(self, folder: pathlib.Path, words: list[str], environment: dict[str, str]) -> None:
        self.mark = uuid.uuid4().hex
        self._out = open(folder / f"stdout-{self.mark}", "w+b")
        self._err = open(folder / f"stderr-{self.mark}", "w+b")
        self.process = subprocess.Popen(
            words,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            env=os.environ | environment | {MARK: self.mark},
            start_new_session=True,
        )

    def wait(self, limit: float = LIMIT) -> Ended:
        code = self.process.wait(limit)
        texts = []
        for file in (self._out, self._err):
            file.seek(0)
            texts.append(file.read().decode())
            file.close()
        return Ended(code, *texts)

    def ended(self) -> bool:
        return self.process.poll() is not None

    def processes(self) -> dict[int, str]:
        """The names of the processes of this command and its pool that live, by their IDs."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                        found[int(entry.name)] = (entry / "comm").read_text().strip()
        return found

    def kill(self, process: int) -> bool:
        """Kills a process of this command. False if it has ended."""
        try:
            # The descriptor can't mean another process that gets the number later.
            descriptor = os.pidfd_open(process)
        except ProcessLookupError:
            return False
        try:
            if process not in self.processes():
                return False
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True

    def kill_all(self) -> None:
        """The driver first: it must not see its workers die."""
        self.kill(self.process.pid)
        for process in self.processes():
            self.kill(process)

    def stop_for(self, seconds: float) -> None:
        """Nothing of this command and its pool runs for this time."""
        stopped = list(self.processes())
        for process in stopped:
            os.kill(process, signal.SIGSTOP)
        time.sleep(seconds)
        for process in stopped:
            os.kill(process, signal.SIGCONT)

    def wait_for_no_process(self) -> None:
        wait_until(lambda: not self.processes(), "the end of all processes of the job")


def wait_until(condition: Callable[[], bool], what: str, limit: float = LIMIT) -> None:
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, f"{what} did not come within {limit} s"
        time.sleep(0.02)


class JobFolder:
    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self.out = path / "out"
        self._started: list[Running] = []

    def __truediv__(self, name: str) -> pathlib.Path:
        return self.path / name

    @property
    def job(self) -> pathlib.Path:
        """The folder with everything but the parts."""
        return self.out / "__job__"

    def code(self, text: str = "", name: str = "app.py") -> None:
        (self.path / name).write_text(MISDEEDS + textwrap.dedent(text))

    def jsonl(self, rows: Iterable[Row], name: str = "in.jsonl") -> None:
        (self.path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    def start(self, *words: str, environment: dict[str, str] | None = None) -> Running:
        running = Running(self.path, [ISOPOOL, "batch", *words], environment or {})
        self._started.append(running)
        return running

    def run(self, *words: str, code: int | None = None, environment: dict[str, str] | None = None) -> Ended:
        """Runs the command to its end, which must have this exit code, if one is named."""
        running = self.start(*words, environment=environment)
        ended = running.wait()
        assert code is None or ended.code == code, ended
        running.wait_for_no_process()
        return ended

    def close(self) -> None:
        """Ends what a failed test has left."""
        for running in self._started:
            running.kill_all()
            running.process.wait(LIMIT)

    def parts(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.out.glob("part-*"))}

    def rows(self) -> dict[str, Row]:
        """The rows of all parts by ID. None is there twice."""
        return by_id(row for path in sorted(self.out.glob("part-*")) for row in rows_of(path))

    def quarantine(self, name: str = "quarantine") -> dict[str, Row]:
        """The items that were set aside by ID."""
        path = self.job / f"{name}.jsonl"
        return by_id(rows_of(path) if path.exists() else [])

    def trace(self, word: str) -> list[str]:
        """The IDs of the items that have begun ("begin") or have got a result ("end"), in order."""
        return [line[1] for line in self._trace() if line[0] == word]

    def worker_of(self, item: str) -> int:
        """The process that has begun the item last."""
        return [int(line[2]) for line in self._trace() if line[:2] == ["begin", item]][-1]

    def _trace(self) -> list[list[str]]:
        path = self.path / "trace"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def close_gates(self, items: Iterable[str]) -> None:
        (self.path / "gates").mkdir(exist_ok=True)
        for item in items:
            os.mkfifo(self.path / "gates" / item)

    def open_gate(self, item: str) -> None:
        gate = self.path / "gates" / item
        # The waiting reader goes on; later ones do not find the gate.
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(gate, os.O_RDWR)
            gate.unlink()
            os.close(descriptor)

    def open_all_gates(self) -> None:
        for gate in list((self.path / "gates").iterdir()):
            self.open_gate(gate.name)

    def leftovers(self) -> list[str]:
        """Files of the output folder that only an unfinished run has."""
        names = [path.name for folder in (self.out, self.job) for path in folder.iterdir()]
        return [name for name in names if name == "work" or name.endswith(".aside")]


def by_id(rows: Iterable[Row]) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for row in rows:
        identity = str(row["id"])
        assert identity not in found, f"{identity} is there twice"
        found[identity] = row
    return found


def rows_of(path: pathlib.Path) -> list[Row]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    # Imported here: most tests need no pyarrow.
    import pyarrow.parquet  # type: ignore[import-untyped]

    rows: list[Row] = pyarrow.parquet.read_table(path).to_pylist()
    return rows


def numbers(count: int, bad: dict[int, str] | None = None, **more: Any) -> list[Row]:
    """Rows i0, i1, ... for square(); some do what `bad` says."""
    return [
        {"id": f"i{n}", "n": n} | more | ({"bad": bad[n]} if bad is not None and n in bad else {}) for n in range(count)
    ]


def squares(count: int, without: Iterable[int] = ()) -> dict[str, Row]:
    """The right results."""
    left_out = set(without)
    return {f"i{n}": {"id": f"i{n}", "square": n * n} for n in range(count) if n not in left_out}


@contextlib.contextmanager
def job_folder(path: pathlib.Path) -> Iterator[JobFolder]:
    folder = JobFolder(path)
    try:
        yield folder
    finally:
        folder.close()
