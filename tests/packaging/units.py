"""The systemd units do what their comments promise, and systemd accepts them without a warning.

    python tests/packaging/units.py ISOPOOLD ISOPOOL CMAKE PLAIN_WORKER

Exits with 77 and prints the reason if systemd is not installed.
"""

import configparser
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

PACKAGING = pathlib.Path(__file__).parents[2] / "packaging"
NOT_RUN = 77
LOGROTATE = PACKAGING / "logrotate" / "isopool"
EXAMPLE = PACKAGING / "isopool.toml"
SHORTEST_LINE = 90  # bytes of a line of output in the log, without its text
UNITS = ("isopoold.service", "isopoold.socket", "isopool-metrics.service")


def output(*command: str | pathlib.Path) -> str:
    finished = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert finished.returncode == 0, f"{command}: {finished.stdout}"
    return finished.stdout


def seconds(text: str) -> float:
    factors = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
    number, unit = re.fullmatch(r"(\d+)([a-z]*)", text).groups()
    return int(number) * factors[unit]


def read_unit(path: pathlib.Path) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, strict=False, comment_prefixes=("#",))
    unit.optionxform = str
    unit.read(path)
    return unit


def check_service(path: pathlib.Path, isopoold: pathlib.Path) -> None:
    service = read_unit(path)["Service"]
    assert service["ExecStart"].split()[0] == str(isopoold), service["ExecStart"]
    shown = json.loads(output(isopoold, "--show-settings", "--json"))
    defaults = {each["key"]: each["value"] for each in shown}
    assert seconds(service["TimeoutStopSec"]) > seconds(defaults["drain_timeout"])
    assert seconds(service["TimeoutStartSec"]) > seconds(defaults["zygote_timeout"])
    assert (service["Type"], service["NotifyAccess"]) == ("notify", "main")
    check_reload(isopoold, path)
    check_log(service, defaults)
    assert service["RemoveIPC"] == "yes" and service["MemoryMax"] and int(service["TasksMax"]) > 0
    # Without these namespaces strict workers have no folder for temporary files.
    assert service["RestrictNamespaces"] == "user mnt"
    # isopoold makes a control group for each worker, and the files of groups can be written.
    assert service["Delegate"] == "memory pids"
    assert "ProtectControlGroups" not in service
    # Otherwise the end of the service removes the socket at which systemd continues to listen.
    assert service["RuntimeDirectoryPreserve"] == "yes"


def check_log(service: configparser.SectionProxy, defaults: dict[str, str]) -> None:
    """The log file of the documentation and of logrotate is where the service may write."""
    assert service["ProtectSystem"] == "strict"
    may_write = {"/var/log/" + name for name in service["LogsDirectory"].split()}
    rotated = re.findall(r"^(/\S+) \{$", LOGROTATE.read_text(), re.MULTILINE)
    shown = re.findall(r"^#log_file = \"(.*)\"$", EXAMPLE.read_text(), re.MULTILINE)
    assert rotated == shown and len(shown) == 1, (rotated, shown)
    assert str(pathlib.Path(shown[0]).parent) in may_write, (shown, may_write)
    # A user that the folder belongs to, not root, renames the files in it.
    assert f"su {service['User']} {service['Group']}\n" in LOGROTATE.read_text()
    # The journal has room for all lines of workers that isopoold lets through in an hour, and for its own.
    lines = size(defaults["worker_output_quota"]) / SHORTEST_LINE
    assert int(service["LogRateLimitBurst"]) > 1.25 * lines, lines
    assert seconds(service["LogRateLimitIntervalSec"]) <= 3600


def check_rotation(isopoold: pathlib.Path, worker: pathlib.Path) -> str:
    """logrotate, as packaged, renames the file, and isopoold's next line is in a new one."""
    if shutil.which("logrotate") is None:
        return "no logrotate here; on Debian: apt-get install logrotate"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        log = folder / "isopoold.log"
        settings = LOGROTATE.read_text().replace("/var/log/isopool/isopoold.log", str(log))
        settings = re.sub(r"^ *su .*\n", "", settings, flags=re.MULTILINE)
        (folder / "logrotate").write_text(settings)
        command = [isopoold, "--listen", folder / "socket", "--worker", worker, "--workers", "1"]
        supervisor = subprocess.Popen([*command, "--log-file", log, "--log-level", "info"])
        try:
            await_text(log, "serving")
            output("logrotate", "--force", "--state", folder / "state", folder / "logrotate")
            supervisor.terminate()
            assert supervisor.wait(30) == 0
            assert "shutting down" in log.read_text()
            assert "shutting down" not in (folder / "isopoold.log.1").read_text()
        finally:
            supervisor.kill()
            supervisor.wait()
    return "logrotate and isopoold rotate the log"


def await_text(path: pathlib.Path, text: str) -> None:
    end = time.monotonic() + 30
    while not path.exists() or text not in path.read_text():
        assert time.monotonic() < end, f"{path} has no {text}"
        time.sleep(0.05)


def size(text: str) -> int:
    factors = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
    number, unit = re.fullmatch(r"(\d+)([KMG]iB)", text).groups()
    return int(number) * factors[unit]


def check_reload(isopoold: pathlib.Path, path: pathlib.Path) -> None:
    # A reload is two commands, and the first one checks the file that the service reads.
    commands = re.findall(r"^ExecReload=(.*)$", path.read_text(), re.MULTILINE)
    started = re.search(r"^ExecStart=(.*)$", path.read_text(), re.MULTILINE)[1]
    assert commands == [started + " --check", "/bin/kill -HUP $MAINPID"], commands
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        check = commands[0].replace("/etc/isopool/isopool.toml", file.name).split()
        assert check[0] == str(isopoold)
        for text, exit_code in (("spares = 1\n", 0), ("spares = true\n", 2)):
            file.seek(0)
            file.truncate()
            file.write(text)
            file.flush()
            said = subprocess.run(check, capture_output=True, text=True, check=False)
            assert said.returncode == exit_code, said


def check_metrics_service(unit: configparser.ConfigParser, isopool: pathlib.Path) -> None:
    program, *arguments = unit["Service"]["ExecStart"].split()
    assert program == str(isopool), program
    # Takes these arguments, and refuses a wrong address.
    arguments[-1] = "0.0.0.0:9464"
    refused = subprocess.run([isopool, *arguments], capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "loopback" in refused.stderr, refused.stderr


def check_with_systemd(folder: pathlib.Path) -> str:
    # systemd-analyze exits with 0 even if it reports that it ignores a line.
    said = output("systemd-analyze", "verify", *(folder / unit for unit in UNITS))
    assert said == "", said
    wrong = folder / "wrong" / UNITS[0]
    wrong.parent.mkdir()
    shutil.copy(folder / UNITS[1], wrong.parent)
    wrong.write_text((folder / UNITS[0]).read_text().replace("KillMode=mixed", "KillMode=mixd"))
    said = output("systemd-analyze", "verify", wrong)
    assert "mixd" in said, "a wrong line was let through"
    if shutil.which("systemd-sysusers") is None:
        return "no systemd-sysusers here"
    output("systemd-sysusers", "--dry-run", PACKAGING / "systemd" / "isopool.sysusers")
    return "users and units are right"


def main() -> int:
    isopoold = pathlib.Path(sys.argv[1])
    isopool = pathlib.Path(sys.argv[2])
    cmake = sys.argv[3]
    print(check_rotation(isopoold, pathlib.Path(sys.argv[4])))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        output(
            cmake,
            f"-DPROGRAM={isopoold}",
            f"-DCOMMAND={isopool}",
            "-DDATA_FOLDER=/usr/share/isopool",
            f"-DFOLDER={folder}",
            "-P",
            PACKAGING / "systemd" / "units.cmake",
        )
        check_service(folder / UNITS[0], isopoold)
        check_metrics_service(read_unit(folder / UNITS[2]), isopool)
        socket = read_unit(folder / UNITS[1])["Socket"]
        assert socket["SocketMode"] == "0660"
        if shutil.which("systemd-analyze") is None:
            print("no systemd-analyze here; on Debian: apt-get install systemd")
            return NOT_RUN
        print(check_with_systemd(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
