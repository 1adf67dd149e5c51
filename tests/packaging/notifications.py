"""isopoold notifies its service manager from the process that the manager started (NotifyAccess=main).

    python tests/packaging/notifications.py ISOPOOLD PLAIN_WORKER ISOPOOL

Also while another supervisor takes over: to the service manager, the service goes on.
"""

import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile

PATIENCE = 30.0
CREDENTIALS = struct.Struct("3i")
STATES = ("READY=1", "RELOADING=1", "STOPPING=1", "WATCHDOG=1")


def next_notification(manager: socket.socket) -> tuple[str, int]:
    """A notification's first line, and the process that the kernel names as its sender."""
    text, ancillary, _, _ = manager.recvmsg(4096, socket.CMSG_SPACE(CREDENTIALS.size))
    sender = CREDENTIALS.unpack(ancillary[0][2])[0]
    return text.decode().split("\n")[0], sender


def await_state(manager: socket.socket, state: str, started: int, never: str = "") -> None:
    seen = ""
    while seen != state:
        seen, sender = next_notification(manager)
        assert seen != never
        assert sender == started, f"{seen} came from process {sender}, not from {started}"
        assert seen in STATES or seen.startswith("STATUS="), seen


def main() -> int:
    isopoold, worker, command_line = map(pathlib.Path, sys.argv[1:])
    with tempfile.TemporaryDirectory() as name, socket.socket(
        socket.AF_UNIX, socket.SOCK_DGRAM
    ) as manager:
        folder = pathlib.Path(name)
        manager.bind(str(folder / "notify"))
        manager.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        manager.settimeout(PATIENCE)
        environment = {**os.environ, "NOTIFY_SOCKET": str(folder / "notify")}
        environment["WATCHDOG_USEC"] = "200000"
        command = [isopoold, "--listen", folder / "socket", "--worker", worker, "--workers", "1"]
        supervisor = subprocess.Popen(command, env=environment)
        try:
            await_state(manager, "READY=1", supervisor.pid)
            await_state(manager, "WATCHDOG=1", supervisor.pid)
            supervisor.send_signal(signal.SIGHUP)
            await_state(manager, "RELOADING=1", supervisor.pid)
            await_state(manager, "READY=1", supervisor.pid)
            restart = subprocess.run([command_line, "restart", "--socket", folder / "socket"])
            assert restart.returncode == 0
            await_state(manager, "READY=1", supervisor.pid, never="STOPPING=1")
            await_state(manager, "WATCHDOG=1", supervisor.pid, never="STOPPING=1")
            await_state(manager, "WATCHDOG=1", supervisor.pid, never="STOPPING=1")
            supervisor.send_signal(signal.SIGTERM)
            await_state(manager, "STOPPING=1", supervisor.pid)
            assert supervisor.wait(PATIENCE) == 0
        finally:
            supervisor.kill()
            supervisor.wait()
    print("each notification came from the process that was started")
    return 0


if __name__ == "__main__":
    sys.exit(main())
