"""What the soak needs to know about processes."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path


class Program:
    """A process that is started again after each end."""

    def __init__(self, command: list[object], environment: dict[str, str], log: Path) -> None:
        self._command, self._environment, self._log = list(map(str, command)), environment, log
        self.start()

    def start(self) -> None:
        with open(self._log, "a") as log:
            self.process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log
            )
        self.ready: float | None = None  # when it was found to be ready, by time.monotonic()

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=120)


def usage_of(pid: int) -> tuple[int, float]:
    """Open descriptors, and resident memory in MB that belongs to no file and is not shared."""
    status = Path(f"/proc/{pid}/status").read_text()
    anonymous = next(line for line in status.splitlines() if line.startswith("RssAnon"))
    return len(os.listdir(f"/proc/{pid}/fd")), int(anonymous.split()[1]) / 1e3


def processes_with(variable: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and variable in (entry / "environ").read_text("latin1"):
                found.append(int(entry.name))
        except OSError:
            pass  # it has just ended
    return [pid for pid in found if pid != os.getpid()]
