"""Functions that the tests of the package share."""

import os
import pathlib
import subprocess

BUILD_FOLDER = pathlib.Path(os.environ["ISOPOOL_BUILD_FOLDER"])
CMAKE = os.environ["ISOPOOL_CMAKE"]


def run(*command: str | pathlib.Path) -> str:
    # The programs must find supervisor and worker without settings.
    environment = {**os.environ}
    environment.pop("ISOPOOL_SUPERVISOR", None)
    finished = subprocess.run(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    )
    code = finished.returncode
    assert code == 0, f"{command} ended with {code}:\n{finished.stdout}"
    return finished.stdout


def needed_libraries(program: pathlib.Path) -> str:
    lines = run("readelf", "-d", program).splitlines()
    return "\n".join(line for line in lines if "NEEDED" in line)
