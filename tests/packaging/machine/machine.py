"""The packages on a machine with systemd: what an operator does, and what the machine's programs notice.

    python3 machine.py --this-machine-may-change install CALLER MODEL PACKAGE...   and after a reboot:
    python3 machine.py --this-machine-may-change remove CALLER MODEL

As root, on a machine for this purpose only: it installs and removes packages, a user and settings. CALLER is the
program of this folder, built against isopool-dev, and MODEL what package_doubled.py writes. The virtual environment of
README.Debian and what the packages depend on must be there; neither command needs a network. Prints each claim once it
was seen to hold; ends at the first that does not, with exit code 1.
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import pwd
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

PATIENCE = 900.0  # emulated processors are slow
SETTINGS = pathlib.Path("/etc/isopool/isopool.toml")
SOCKET = pathlib.Path("/run/isopool/isopoold.sock")
MEMBER, OUTSIDER = "isopool-member", "isopool-outsider"
LOSSES = ("wrong", "worker_lost", "started_lost", "waiting_lost", "other")
# Nothing of these may be left once the packages are purged.
TRACES = ("/etc/isopool", "/etc/logrotate.d/isopool", "/run/isopool", "/var/cache/isopool", "/var/log/isopool",
          "/usr/libexec/isopool", "/usr/share/isopool", "/usr/bin/isopool",
          "/usr/lib/systemd/system/isopoold.service")  # fmt: skip


class Broken(Exception):
    """A claim that does not hold: one line."""


def hold(claim: str, true: bool, seen: object = "") -> None:
    if not true:
        raise Broken(f"{claim}: {seen}")
    print(f"holds: {claim}", flush=True)


def run(*command: object, fails: bool = False) -> str:
    """A command's output. Raises Broken if it fails, or with `fails` if it does not."""
    words = [str(word) for word in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE)
    if bool(done.returncode) is not fails:
        raise Broken(f"{' '.join(words)} ended with {done.returncode}: {done.stdout.strip()}")
    return done.stdout


def wait_until(what: str, question: Callable[[], bool], patience: float = PATIENCE) -> None:
    end = time.monotonic() + patience
    while not question():
        if time.monotonic() > end:
            raise Broken(f"not within {patience:.0f} s: {what}")
        time.sleep(0.2)


def shown(unit: str, name: str) -> str:
    return run("systemctl", "show", "--value", "--property", name, unit).strip()


def is_active(unit: str) -> bool:
    return shown(unit, "ActiveState") == "active"


def status() -> dict[str, Any]:
    """`isopool status --json`; empty while no supervisor answers."""
    done = subprocess.run(["isopool", "status", "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return dict(json.loads(done.stdout)) if done.stdout else {}


def wait_until_serving(other_than: int = 0) -> dict[str, Any]:
    """The state of a supervisor that serves, of another process than `other_than`."""
    found: dict[str, Any] = {}

    def serving() -> bool:
        found.clear()
        found.update(status())
        return bool(found.get("ready")) and found["pid"] != other_than

    wait_until("a supervisor serves", serving)
    return found


def change_settings(old: str, new: str) -> None:
    text = SETTINGS.read_text()
    if old not in text:
        raise Broken(f"{SETTINGS} has no line {old!r}")
    SETTINGS.write_text(text.replace(old, new))


class Program:
    """The caller, as a user of the machine, with what became of its calls."""

    def __init__(self, caller: str, model: str, user: str, threads: int, seconds: float) -> None:
        self._errors = tempfile.TemporaryFile(mode="w+")
        # Longer than a restart takes on an emulated processor.
        environment = {"ISOPOOL_SOCKET": str(SOCKET), "ISOPOOL_RECONNECT": "15m", "PATH": os.environ["PATH"]}
        command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", caller, model]
        self._process = subprocess.Popen(
            [*command, str(threads), str(seconds)], env=environment, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self._lines: list[str] = []
        self._read = threading.Condition()
        self._reader = threading.Thread(target=self._keep_lines, daemon=True)
        self._reader.start()

    def _keep_lines(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._read:
                self._lines.append(line)
                self._read.notify()

    def next(self) -> dict[str, Any]:
        """The outcomes of all calls so far, printed later than this call. Raises Broken with the program's errors if
        it has ended."""
        with self._read:
            known = len(self._lines)
            end = time.monotonic() + PATIENCE
            while len(self._lines) == known:
                if not self._reader.is_alive():
                    raise Broken(f"the program ended with {self._process.wait(PATIENCE)}: {self.errors()}")
                if time.monotonic() > end:
                    raise Broken("the program prints nothing more")
                self._read.wait(1)
            return dict(json.loads(self._lines[-1]))

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read().strip()

    def progress(self, calls: int = 20) -> dict[str, Any]:
        """Waits until this many further calls were answered."""
        goal = self.next()["right"] + calls
        outcomes: dict[str, Any] = {}

        def reached() -> bool:
            outcomes.update(self.next())
            return bool(outcomes["right"] >= goal)

        wait_until(f"{calls} calls answered", reached)
        return outcomes

    def end(self) -> dict[str, Any]:
        self._process.send_signal(signal.SIGTERM)
        self._reader.join(PATIENCE)
        if self._process.wait(PATIENCE):
            raise Broken(f"the program ended with {self._process.returncode}: {self.errors()}")
        return dict(json.loads(self._lines[-1]))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()


@contextlib.contextmanager
def program(arguments: argparse.Namespace, user: str, threads: int = 3, seconds: float = 0) -> Iterator[Program]:
    started = Program(arguments.caller, arguments.model, user, threads, seconds)
    try:
        yield started
    finally:
        started.kill()


def lost(before: dict[str, Any], after: dict[str, Any]) -> dict[str, int]:
    return {name: after[name] - before[name] for name in LOSSES if after[name] != before[name]}


def install(arguments: argparse.Namespace) -> None:
    print(f"{platform.freedesktop_os_release()['PRETTY_NAME']}, Linux {platform.release()}, {platform.machine()}")
    run("apt-get", "install", "-y", *(str(pathlib.Path(file).resolve()) for file in arguments.packages))
    run("useradd", "--groups", "isopool", "--user-group", MEMBER)
    run("useradd", "--user-group", OUTSIDER)
    hold("the installed settings are valid", "valid" in run("isopoold", "--check", "--config", SETTINGS))
    hold("installing starts nothing", not is_active("isopoold.socket") and not is_active("isopoold.service"))

    run("systemctl", "enable", "--now", "isopoold.socket")
    hold("the socket is there before the service", SOCKET.is_socket() and not is_active("isopoold.service"))
    with program(arguments, MEMBER) as load:
        load.progress()
        hold("a member of the group is served, and its connection starts the service", is_active("isopoold.service"))
        print_protections()
        refuse_outsider(arguments)
        kill_worker(load)
        reload(load)
        restart(load)
        kill_main_process(load)
        stop_supervisor(load)
        ended = load.end()
        hold("no answer was wrong in all of this", not ended["wrong"] and not ended["other"], (ended, load.errors()))
    drain(arguments)
    serve_metrics()
    serve_strict(arguments)
    confine_workers()
    run("systemctl", "enable", "isopoold.service")
    print("now reboot", flush=True)


def print_protections() -> None:
    found = status()
    print(f"sandbox {found['sandbox']}, missing: {found['missing_protections'] or 'nothing'}", flush=True)


def refuse_outsider(arguments: argparse.Namespace) -> None:
    with program(arguments, OUTSIDER) as refused:
        try:
            refused.next()
        except Broken as error:
            hold("a user outside of the group is refused with the reason", "ermission" in str(error), error)
            print(f"  {error}")
        else:
            raise Broken("a user outside of the group is refused: it was served")


def kill_worker(load: Program) -> None:
    before = load.progress()
    supervisor = status()
    os.kill(supervisor["slots"][0]["pid"], signal.SIGKILL)
    wait_until("the supervisor replaced the worker", lambda: status()["restarts"] > supervisor["restarts"])
    loss = lost(before, load.progress())
    hold("a killed worker costs the calls that ran in it", set(loss) <= {"worker_lost"} and sum(loss.values()) <= 3, loss)
    hold("and not the supervisor", status()["pid"] == supervisor["pid"])


def reload(load: Program) -> None:
    before = load.progress()
    pid = status()["pid"]
    change_settings('#drain_timeout = "30s"', 'drain_timeout = "29s"')
    run("systemctl", "reload", "isopoold")
    settings = {each["key"]: each["value"] for each in json.loads(run("isopool", "settings", "--json"))["settings"]}
    hold("a reload applies a changed setting", settings["drain_timeout"] == "29s", settings["drain_timeout"])
    change_settings('drain_timeout = "29s"', 'drain_timeout = "soon"')
    run("systemctl", "reload", "isopoold", fails=True)
    journal = run("journalctl", "--unit", "isopoold", "--lines", 30, "--output", "cat")
    hold("a reload with a mistake fails, and names it", "soon" in journal, journal)
    change_settings('drain_timeout = "soon"', '#drain_timeout = "30s"')
    run("systemctl", "reload", "isopoold")
    loss = lost(before, load.progress())
    hold("reloads lose no call and no process", not loss and status()["pid"] == pid, loss)


def restart(load: Program) -> None:
    before = load.progress()
    pid = status()["pid"]
    run("systemctl", "restart", "isopoold")
    wait_until_serving(other_than=pid)
    loss = lost(before, load.progress())
    hold("systemctl restart under load loses no call", not loss, (loss, load.errors()))


def kill_main_process(load: Program) -> None:
    before = load.progress()
    pid = status()["pid"]
    os.kill(int(shown("isopoold.service", "MainPID")), signal.SIGKILL)
    wait_until_serving(other_than=pid)
    loss = lost(before, load.progress())
    hold("after kill -9 systemd restarts the service, and only calls that ran are lost",
         set(loss) <= {"worker_lost", "started_lost"} and sum(loss.values()) <= 3, (loss, load.errors()))  # fmt: skip
    wait_until("one service is left", lambda: not processes_outside_of_the_unit())


def processes_outside_of_the_unit() -> list[str]:
    """Processes of the service's user that are in no unit, that is, left behind."""
    listed = subprocess.run(["ps", "-u", "isopool", "-o", "unit=,pid=,args="], stdout=subprocess.PIPE, text=True).stdout
    return [line for line in listed.splitlines() if not line.startswith("isopoold.service")]


def stop_supervisor(load: Program) -> None:
    before = load.progress()
    pid = status()["pid"]
    os.kill(pid, signal.SIGSTOP)
    wait_until_serving(other_than=pid)
    loss = lost(before, load.progress())
    hold("a supervisor that is stopped is replaced by the watchdog",
         set(loss) <= {"worker_lost", "started_lost"} and sum(loss.values()) <= 3, (loss, load.errors()))  # fmt: skip


def drain(arguments: argparse.Namespace) -> None:
    with program(arguments, MEMBER, threads=1, seconds=5) as slow:
        first = slow.progress(calls=1)
        wait_until("a call runs", lambda: status()["running_calls"] == 1)
        run("systemctl", "stop", "isopoold.service")
        stopped = not is_active("isopoold.service") and shown("isopoold.service", "Result") == "success"
        hold("systemctl stop ends the service without a failure", stopped, shown("isopoold.service", "Result"))
        # The program's next call connects, and so starts the service again.
        after = slow.progress(calls=1)
        hold("a call that ran at systemctl stop was answered, and the next one started the service",
             not lost(first, after) and is_active("isopoold.service"), (lost(first, after), slow.errors()))  # fmt: skip


def serve_metrics() -> None:
    run("systemctl", "start", "isopool-metrics.service")

    def up() -> bool:
        try:
            with urllib.request.urlopen("http://127.0.0.1:9464/metrics", timeout=10) as answer:
                return "\nisopool_up 1\n" in answer.read().decode()
        except OSError:
            return False

    wait_until("the metrics say that the supervisor is up", up)
    hold("isopool-metrics.service serves the supervisor's metrics", True)


def serve_strict(arguments: argparse.Namespace) -> None:
    pid = status()["pid"]
    change_settings('#level = "default"', 'level = "strict"')
    run("systemctl", "restart", "isopoold")
    found = wait_until_serving(other_than=pid)
    hold("the unit serves with the sandbox's level strict", found["sandbox"] == "strict", found["sandbox"])
    print_protections()
    with program(arguments, MEMBER) as load:
        outcomes = load.progress()
        hold("strict workers answer", not any(outcomes[name] for name in LOSSES), (outcomes, load.errors()))


def group_of(pid: int) -> pathlib.Path:
    line = next(each for each in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines() if each.startswith("0::"))
    return pathlib.Path("/sys/fs/cgroup" + line[3:])


def confine_workers() -> None:
    pid = status()["pid"]
    change_settings('level = "strict"', 'level = "strict"\nmemory = "512MiB"\nprocesses = 200')
    run("systemctl", "restart", "isopoold")
    found = wait_until_serving(other_than=pid)
    service = group_of(found["pid"]).parent
    hold("isopoold is in a group of its own", group_of(found["pid"]).name == "isopoold", group_of(found["pid"]))
    for worker in json.loads(run("isopool", "workers", "--json"))["workers"]:
        group = group_of(worker["pid"])
        limits = {name: (group / name).read_text().strip()
                  for name in ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cgroup.procs")
                  if (group / name).exists()}  # fmt: skip
        hold("a worker is alone in a group below that of the service",
             group == service / f"worker-{worker['pid']}" and limits["cgroup.procs"] == str(worker["pid"]),
             (group, limits))  # fmt: skip
        hold("the group has the limits of the settings",
             int(limits["memory.max"]) > 512 << 20 and limits["memory.oom.group"] == "1"
             and limits.get("memory.swap.max", "0") == "0" and limits["pids.max"] == "200", limits)  # fmt: skip
    worker = json.loads(run("isopool", "workers", "--json"))["workers"][0]
    group = group_of(worker["pid"])
    left = subprocess.Popen(["sleep", "100000"], start_new_session=True)
    (group / "cgroup.procs").write_text(str(left.pid))
    os.kill(worker["pid"], signal.SIGKILL)
    hold("what is in a worker's group ends with the worker", left.wait(PATIENCE) == -signal.SIGKILL, left.returncode)
    wait_until("the group of a dead worker is removed", lambda: not group.exists())
    found = wait_until_serving()
    worker = json.loads(run("isopool", "workers", "--json"))["workers"][0]
    source = "import sys; input(); taken = [b'x' * (16 << 20) for _ in range(1000)]"
    hungry = subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE, text=True)
    (group_of(worker["pid"]) / "cgroup.procs").write_text(str(hungry.pid))
    hungry.communicate("\n")
    hold("the kernel kills a process of a worker's group that takes too much", hungry.returncode == -signal.SIGKILL,
         hungry.returncode)  # fmt: skip
    counted = 'isopool_worker_deaths_total{group="shared",cause="memory_limit"} 1'
    wait_until(f"the worker dies with it: {counted}", lambda: counted in run("isopool", "metrics"))
    log = run("journalctl", "-u", "isopoold", "--since", "-10min", "--no-pager")
    hold("the log names the cause", "more memory than its control group allows (ISOPOOL_WORKER_MEMORY)" in log, log)


def remove(arguments: argparse.Namespace) -> None:
    found = wait_until_serving()
    hold("after a reboot the service serves without a program", found["clients"] == 0, found["clients"])
    with program(arguments, MEMBER) as load:
        outcomes = load.progress()
        hold("its answers are right", not any(outcomes[name] for name in LOSSES), (outcomes, load.errors()))
    run("apt-get", "purge", "-y", "isopool", "isopool-dev")
    left = [each for each in TRACES if os.path.lexists(each)]
    hold("purging leaves no file", not left, left)
    users = [user.pw_name for user in pwd.getpwall() if user.pw_name == "isopool"]
    remaining = [name for name in run("ps", "-e", "-o", "comm=").splitlines() if name.startswith("isopool")]
    hold("nor its user and processes", not users and not remaining, (users, remaining))
    hold("nor a unit that failed", "isopool" not in run("systemctl", "list-units", "--all", "--plain", "isopool*"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--this-machine-may-change", action="store_true", required=True)
    steps = parser.add_subparsers(required=True, metavar="STEP")
    for step in (install, remove):
        options = steps.add_parser(step.__name__)
        options.set_defaults(step=step)
        options.add_argument("caller")
        options.add_argument("model")
        if step is install:
            options.add_argument("packages", nargs="+", metavar="PACKAGE", help="isopool and isopool-dev")
    arguments = parser.parse_args()
    if os.geteuid() or not os.path.isdir("/run/systemd/system"):
        sys.exit("machine.py: needs root and a machine that systemd has booted")
    try:
        arguments.step(arguments)
    except Broken as error:
        print(f"does not hold: {error}", flush=True)
        print(run("journalctl", "--unit", "isopoold", "--lines", 60, "--output", "short-monotonic"), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
