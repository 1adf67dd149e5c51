"""What the tests of the package share."""

import os
import pathlib
import subprocess

BUILD_FOLDER = pathlib.Path(os.environ["ISOPOOL_BUILD_FOLDER"])
CMAKE = os.environ["ISOPOOL_CMAKE"]


def run(*command: str | pathlib.Path) -> str:
    # The programs must find supervisor and worker by themselves.
    environment = {name: value for name, value in os.environ.items() if name != "ISOPOOL_SUPERVISOR"}
    finished = subprocess.run(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    )
    assert finished.returncode == 0, f"{command} ended with {finished.returncode}:\n{finished.stdout}"
    return finished.stdout


def needed_libraries(program: pathlib.Path) -> str:
    return "\n".join(line for line in run("readelf", "-d", program).splitlines() if "NEEDED" in line)
