"""What works in a container: each row of the table in docs/operating.md, "In a container".

A real isopoold with a real worker runs as the first process of such surroundings, a program calls a
model, and `isopool status` shows what it shows an operator.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAMS = pathlib.Path(os.environ["ISOPOOL_PROGRAMS"])
ISOPOOLD = pathlib.Path(os.environ["ISOPOOLD"])
PACKAGES = pathlib.Path(os.environ["ISOPOOL_PACKAGES"])
CONTAINED = HERE / "contained.py"
NOT_POSSIBLE = 77
PATIENCE = 120.0
NEVER_NEEDED = "pidfd_getfd,close_range,memfd-huge-pages"
# What container engines refuse by default, as far as isopool could come across it.
OF_ENGINES = ("--no-user-namespaces", "filter", "--refuse", "EPERM",
              "mount,setns,keyctl,userfaultfd,move_pages,fsopen,pidfd_getfd")  # fmt: skip

# Starts a service and waits until it serves. Arguments: isopoold, the folder of programs, a package.
SERVE = """
isopoold=$1 programs=$2 package=$3
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
export ISOPOOL_SOCKET=$folder/isopoold.sock
"$isopoold" --listen "$ISOPOOL_SOCKET" --workers 1 --spares 0 &
service=$!
until "$programs/isopool" status --ready 2>/dev/null; do
  kill -0 $service || exit 3
  sleep 0.1
done
"""
END = """
kill $service
wait $service || exit 6
"""
# Serves, calls, shows the state, ends.
SERVE_AND_CALL = f"""{SERVE}
"$programs/hello" "$package" || exit 4
"$programs/isopool" status --json || exit 5
{END}"""


@dataclass
class Served:
    """What a service in surroundings of its own answered, logged and showed."""

    answers: str
    status: dict
    log: str

    @property
    def missing(self) -> list[str]:
        """Protections of the sandbox that this system lacks."""
        return self.status["missing_protections"]

    def shows_as_missing(self, beginning: str) -> bool:
        """True if `isopool status` shows one missing protection with this beginning."""
        more = [each for each in self.missing if each.startswith(beginning)]
        return len(more) == 1 and bool(self.status["findings"])


def contained(options: tuple[str, ...], *command: object) -> list[str]:
    return [sys.executable, str(CONTAINED), *options, "--", *map(str, command)]


def skip_if_not_possible(code: int, errors: str) -> None:
    if code == NOT_POSSIBLE:
        pytest.skip(errors.strip().splitlines()[-1])


def run(options: tuple[str, ...], *command: object, **variables: str) -> subprocess.CompletedProcess:
    result = subprocess.run(
        contained(options, *command),
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    skip_if_not_possible(result.returncode, result.stderr)
    return result


def serve_and_call(package: pathlib.Path, *options: str, sandbox: str = "default") -> Served:
    result = run(
        options, "/bin/sh", "-c", SERVE_AND_CALL, "sh", ISOPOOLD, PROGRAMS, package,
        ISOPOOL_SANDBOX=sandbox,
    )  # fmt: skip
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    answers, _, status = result.stdout.partition("\n{")
    return Served(answers, json.loads("{" + status), result.stderr)


def answered(served: Served) -> bool:
    # Each of three elements is doubled.
    return re.search(r"\n 2\n 2\n 2\n\[ CPUFloatType\{3\} \]", served.answers) is not None


@pytest.fixture(scope="session")
def hello() -> pathlib.Path:
    make("package_hello.py")
    return PACKAGES / "hello.pt"


@pytest.fixture(scope="session")
def classifier() -> pathlib.Path:
    make("package_classifier.py")
    return PACKAGES


def make(script: str) -> None:
    command = [sys.executable, ROOT / "examples" / script, "--out", PACKAGES]
    subprocess.run(command, check=True, timeout=PATIENCE)


PROBE = """
import ctypes, errno, json, os
libc = ctypes.CDLL(None, use_errno=True)

def outcome(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(number, *arguments)
    if number == 56 and result == 0:
        os._exit(0)  # the new process
    return errno.errorcode[ctypes.get_errno()] if result == -1 else "works"

def can_make(path):
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        return True
    except OSError:
        return False

shm = os.statvfs("/dev/shm")
print(json.dumps({
    "pid": os.getpid(),
    "memfd": outcome(319, b"x", 0),
    "memfd-huge-pages": outcome(319, b"x", 4),
    "pidfd_getfd": outcome(438, -1, 0, 0),
    "close_range": outcome(436, 1000, 1000, 0),
    "unshare": outcome(272, 0x10000000),
    "clone": outcome(56, 0x10000000 | 17, 0, 0, 0, 0),
    "landlock": outcome(444, None, 0, 1),
    "proc": sorted(set(os.listdir("/proc")) & {"sys", "cpuinfo"}),
    "sysctls": os.path.exists("/proc/sys/kernel"),
    "writable": [path for path in ("/", "/usr", "/dev", "/tmp", "/dev/shm") if can_make(path + "/isopool-probe")],
    "shm": shm.f_blocks * shm.f_frsize,
}))
"""


def probe(*options: str) -> dict[str, object]:
    result = run(options, sys.executable, "-c", PROBE)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


# Else the tests below would show nothing.
def test_the_surroundings_are_as_restricted_as_they_are_asked_to_be() -> None:
    seen = probe("--read-only-root", "--refuse", "ENOSYS", NEVER_NEEDED)
    assert seen["pid"] == 1
    assert seen["writable"] == ["/tmp", "/dev/shm"]
    assert seen["shm"] == 64 << 20
    assert [seen[name] for name in ("memfd", *NEVER_NEEDED.split(","))] == ["works"] + 3 * ["ENOSYS"]
    assert seen["unshare"] == "works"
    seen = probe(*OF_ENGINES, "--refuse", "EPERM", NEVER_NEEDED + ",landlock_create_ruleset")
    refused = (*NEVER_NEEDED.split(","), "landlock", "unshare", "clone")
    assert [seen[name] for name in refused] == 6 * ["EPERM"]
    assert probe("--no-user-namespaces", "limit")["unshare"] == "ENOSPC"
    seen = probe("--proc", "no-sys", "--shm", "0", "--read-only-root")
    assert (seen["proc"], seen["sysctls"]) == (["cpuinfo", "sys"], False)
    assert seen["writable"] == ["/tmp"]
    assert probe("--proc", "processes-only")["proc"] == []


def test_the_demos_model_answers_in_a_container_with_all_restrictions(
    classifier: pathlib.Path,
) -> None:
    options = ("--read-only-root", "--shm", "64m", "--proc", "no-sys", "--user", "65534", *OF_ENGINES,
               "--refuse", "ENOSYS", "close_range,memfd-huge-pages")  # fmt: skip
    if os.getuid() != 0:
        options = tuple(word for word in options if word not in ("--user", "65534"))
    result = run(
        options, PROGRAMS / "classify_pictures", classifier, "--workers", 1, "--seconds", 0.1,
        "--json", ISOPOOL_SANDBOX="strict",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["right"] is True


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--shm", "64m"), id="a-small-dev-shm"),
        pytest.param(("--shm", "0"), id="no-dev-shm"),
        pytest.param(("--read-only-root",), id="a-root-that-can-not-be-written"),
        pytest.param(("--proc", "no-sys"), id="no-proc-sys"),
        pytest.param(("--proc", "processes-only"), id="a-proc-of-processes-only"),
        pytest.param(("--refuse", "ENOSYS", NEVER_NEEDED), id="calls-that-do-not-exist"),
        pytest.param(("--refuse", "EPERM", NEVER_NEEDED), id="calls-that-are-refused"),
        pytest.param(OF_ENGINES, id="an-engines-filter"),
        pytest.param(("--no-user-namespaces", "limit"), id="no-user-namespaces"),
    ],
)
def test_nothing_is_weaker_at_the_default_level_with(
    options: tuple[str, ...], hello: pathlib.Path
) -> None:
    served = serve_and_call(hello, *options)
    assert answered(served), served
    assert served.status["findings"] == []
    assert served.missing == []


@pytest.mark.parametrize("how", ["limit", "filter"])
def test_strict_workers_without_user_namespaces_have_temporary_files_on_disk(
    how: str, hello: pathlib.Path
) -> None:
    served = serve_and_call(hello, "--no-user-namespaces", how, sandbox="strict")
    assert answered(served), served
    assert served.shows_as_missing("temporary folders in memory: user namespaces are forbidden here")


def test_strict_workers_have_all_protections_if_user_namespaces_are_allowed(
    hello: pathlib.Path,
) -> None:
    outside = serve_and_call(hello, sandbox="strict")
    served = serve_and_call(
        hello, "--read-only-root", "--proc", "no-sys",
        "--refuse", "ENOSYS", NEVER_NEEDED, sandbox="strict",
    )  # fmt: skip
    assert answered(served), served
    assert served.missing == outside.missing
    assert not any("temporary" in missing for missing in served.missing)


def test_strict_workers_without_landlock_are_reported(hello: pathlib.Path) -> None:
    refused = ("--refuse", "EPERM", "landlock_create_ruleset")
    served = serve_and_call(hello, *refused, sandbox="strict")
    assert answered(served), served
    assert served.shows_as_missing("file rules: no Landlock here")


def settings_in(*options: str) -> dict[str, object]:
    result = run(options, ISOPOOLD, "--show-settings", "--json")
    assert result.returncode == 0, result.stderr
    return {each["key"]: each["value"] for each in json.loads(result.stdout)}


def test_the_number_of_workers_follows_the_control_groups_processors() -> None:
    assert settings_in("--processors", "1")["workers"] == 1
    assert settings_in("--shows", "cpu.max=50000 100000")["workers"] == 1
    assert settings_in("--shows", "cpu.max=max 100000")["workers"] == settings_in()["workers"]


def test_the_caps_of_shared_memory_follow_the_control_groups_memory() -> None:
    assert settings_in("--memory", str(2 << 30))["output_arena_limit"] == "512MiB"
    assert settings_in("--shows", f"memory.max={1 << 30}")["output_arena_limit"] == "256MiB"
    assert settings_in("--shows", "memory.max=max") == settings_in()


def jobs_in(*options: str) -> int:
    command = f"source {ROOT}/scripts/setup.sh; parallel_jobs"
    result = run(options, "/bin/bash", "-c", command)
    assert result.returncode == 0, result.stderr
    return int(result.stdout)


def test_the_number_of_compilers_at_a_time_follows_the_control_group() -> None:
    assert jobs_in("--shows", f"memory.max={5 << 30}", "--shows", "cpu.max=max 100000") <= 2
    assert jobs_in("--shows", f"memory.max={2 << 30}") == 1
    assert jobs_in("--shows", "memory.max=1000000") == 1
    assert jobs_in("--shows", "cpu.max=100000 100000") == 1


HUNGRY = """
import sys, torch
from torch.package import PackageExporter
sys.path.insert(0, sys.argv[2])
import hungry
with PackageExporter(sys.argv[1]) as exporter:
    exporter.intern("hungry")
    exporter.save_pickle("model", "model.pkl", hungry.Hungry())
"""
HUNGRY_MODEL = """
import torch


class Hungry(torch.nn.Module):
    def forward(self, x):
        taken = []
        while True:
            taken.append(b"x" * (16 << 20))
"""
# The same, with a call of a model that takes all memory in between.
LOSE_A_WORKER = f"""{SERVE}
hungry=$4
"$programs/hello" "$hungry" && exit 7
until "$programs/isopool" status --ready 2>/dev/null; do sleep 0.1; done
"$programs/hello" "$package" || exit 4
"$programs/isopool" workers --json || exit 5
"$programs/isopool" metrics || exit 5
{END}"""


def test_a_model_that_takes_all_memory_of_the_control_group_costs_one_worker(
    hello: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "hungry.py").write_text(HUNGRY_MODEL)
    hungry = tmp_path / "hungry.pt"
    command = [sys.executable, "-c", HUNGRY, str(hungry), str(tmp_path)]
    subprocess.run(command, check=True, timeout=PATIENCE)
    result = run(("--memory", str(1 << 30)), "/bin/sh", "-c", LOSE_A_WORKER, "sh",
                 ISOPOOLD, PROGRAMS, hello, hungry)  # fmt: skip
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    assert "WorkerLost" in result.stderr, result.stderr
    assert "\n 2\n 2\n 2\n" in result.stdout, "the service did not go on"
    died = "SIGKILL (killed from outside: by the kernel's out-of-memory killer; sandbox.memory"
    assert died in result.stdout, result.stdout
    assert died in result.stderr, "the log does not name the cause"
    counted = 'isopool_worker_deaths_total{group="shared",cause="out_of_memory"} 1'
    assert counted in result.stdout, result.stdout


def test_a_control_group_that_is_killed_as_a_whole_is_reported_at_the_start(
    hello: pathlib.Path,
) -> None:
    served = serve_and_call(hello, "--shows", "memory.oom.group=1")
    assert answered(served), served
    assert "memory.oom.group=1" in served.log
    assert "memory.oom.group" not in serve_and_call(hello, "--shows", "memory.oom.group=0").log


class Container:
    """isopoold as the first process of surroundings of its own, as in the image. `address`: of its
    socket, as seen inside."""

    def __init__(self, address: pathlib.Path, *options: str, **variables: str) -> None:
        self.address = address
        self._outer = subprocess.Popen(
            contained(options, ISOPOOLD),
            env={**os.environ, "ISOPOOL_LISTEN": str(address), "ISOPOOL_WORKERS": "1", **variables},
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.first = self._first_process()

    def _first_process(self) -> int:
        # contained.py, the process that has made the namespaces, their first process.
        process = self._outer.pid
        for _ in range(2):
            children = ""
            while not (children := children_of(process)):
                self._check_runs()
                time.sleep(0.01)
            process = int(children.split()[0])
        return process

    def _check_runs(self) -> None:
        if self._outer.poll() is not None:
            errors = self._outer.stderr.read()
            skip_if_not_possible(self._outer.returncode, errors)
            raise AssertionError(f"isopoold ended with {self._outer.returncode}: {errors}")

    def execute(self, *command: object) -> subprocess.CompletedProcess:
        """Runs a program inside, as `podman exec` does."""
        enter = ["nsenter", f"--target={self.first}", "--user", "--preserve-credentials", "--mount",
                 "--pid", "--ipc"]  # fmt: skip
        return subprocess.run(
            [*enter, *map(str, command)],
            env={**os.environ, "ISOPOOL_SOCKET": str(self.address)},
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.execute(PROGRAMS / "isopool", "status", "--ready").returncode != 0:
            self._check_runs()
            assert time.monotonic() < deadline, "isopoold does not serve"

    def stop(self) -> int:
        self._outer.send_signal(signal.SIGTERM)
        return self._outer.wait(PATIENCE)

    def close(self) -> None:
        self._outer.kill()
        self._outer.wait()
        self._outer.stderr.close()


def children_of(process: int) -> str:
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{process}/task/{process}/children").read_text()
    return ""


@pytest.fixture
def container(tmp_path: pathlib.Path) -> Iterator[Container]:
    with contextlib.closing(Container(tmp_path / "isopoold.sock")) as running:
        yield running


def test_isopoold_serves_as_process_1_and_ends_as_asked(
    container: Container, hello: pathlib.Path
) -> None:
    container.wait_until_ready()
    called = container.execute(PROGRAMS / "hello", hello)
    assert " 2\n 2\n 2\n" in called.stdout, called
    assert container.stop() == 0


def test_isopoold_serves_as_the_user_and_under_the_restrictions_of_the_image(
    hello: pathlib.Path,
) -> None:
    image = (ROOT / "packaging" / "Containerfile").read_text()
    user = re.search(r"^USER (\d+):", image, re.MULTILINE)[1]
    options = ["--read-only-root", *OF_ENGINES, *(["--user", user] if os.getuid() == 0 else [])]
    # In the image it is a folder of a volume; here /tmp is what can be written.
    address = pathlib.Path("/tmp/isopoold.sock")
    with contextlib.closing(Container(address, *options, ISOPOOL_SANDBOX="strict")) as container:
        container.wait_until_ready()
        called = container.execute(PROGRAMS / "hello", hello)
        assert " 2\n 2\n 2\n" in called.stdout, called
        assert container.stop() == 0


def test_isopoold_as_process_1_reaps_what_other_processes_leave(container: Container) -> None:
    container.wait_until_ready()
    left = container.execute("/bin/sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!").stdout.strip()
    assert container.execute("/bin/kill", "-KILL", left).returncode == 0
    deadline = time.monotonic() + PATIENCE
    while container.execute("/bin/kill", "-0", left).returncode == 0:
        assert time.monotonic() < deadline, f"process {left} stays a zombie"


def test_a_program_whose_processes_isopoold_can_not_see_is_refused_with_the_reason(
    container: Container, hello: pathlib.Path
) -> None:
    container.wait_until_ready()
    environment = {**os.environ, "ISOPOOL_SOCKET": str(container.address)}
    outside = subprocess.run([PROGRAMS / "hello", hello], env=environment, capture_output=True,
                             text=True, timeout=PATIENCE, check=False)  # fmt: skip
    assert outside.returncode != 0
    assert "its process is in another PID namespace" in outside.stderr, outside.stderr


# First cell of a row -> the tests that show what the row states.
ROWS = re.compile(r"^\| (?!surroundings|---)(.+?) \|.*\| `(test_\w+)` \|$", re.MULTILINE)


def test_each_row_of_the_table_in_the_docs_is_a_test_here() -> None:
    page = (ROOT / "docs" / "operating.md").read_text()
    section = page.split("## In a container\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    named = [test for _, test in ROWS.findall(section)]
    assert len(named) == len(rows), "a row names no test"
    for test in named:
        assert test in globals(), f"the table names {test}, which does not exist"
