"""The example service answers rightly, also while its processes are killed.

    python tests/examples/service.py PROGRAMS PYTHON FOLDER

PROGRAMS has service, isopoold and isopool; PYTHON makes the models and has their libraries; FOLDER
gets the models. Tries the models whose packages PYTHON has and prints which it leaves out. Exits
with 77 and prints the reason if it has none of them.
"""

import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "service"
NOT_RUN = 77
START = 240.0  # seconds that a start may take on a busy machine


def run(*command: object, code: int = 0) -> str:
    result = subprocess.run(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=2 * START,
    )
    print(result.stdout, flush=True)
    assert result.returncode == code, f"{command} ended with {result.returncode}"
    return result.stdout


def check_a_private_pool(
    programs: pathlib.Path, python: str, models: pathlib.Path, folder: pathlib.Path
) -> None:
    """Right answers count as right, wrong ones as wrong; SIGTERM ends the service in order."""
    address = folder / "service.sock"
    service = subprocess.Popen(
        [programs / "service", models, "--socket", address, "--python", python],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert service.stdout
        assert service.stdout.readline().startswith("serving "), "the service did not start"
        load = [python, EXAMPLE / "load.py"]
        run(*load, models, "--socket", address, "--seconds", 3)

        expected = json.loads((models / "expected.json").read_text())
        wrong = {name: [[answer] for answer in answers] for name, answers in expected.items()}
        (folder / "expected.json").write_text(json.dumps(wrong))
        found = run(*load, folder, "--socket", address, "--seconds", 3, code=1)
        assert "first WRONG:" in found, "wrong answers were not found"

        service.send_signal(signal.SIGTERM)
        assert service.wait(START) == 0
        assert service.stdout.readline().startswith("stopped: ")
    finally:
        service.kill()
        service.wait()


def main() -> int:
    programs, python, models = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    shutil.rmtree(models, ignore_errors=True)
    run(python, EXAMPLE / "package_models.py", "--out", models)
    if not json.loads((models / "expected.json").read_text()):
        print("not run: no package of examples/service/requirements.txt is installed")
        return NOT_RUN
    with tempfile.TemporaryDirectory() as folder:
        check_a_private_pool(programs, python, models, pathlib.Path(folder))
        soak = [python, EXAMPLE / "soak.py", models, "--programs", programs, "--python", python]
        soak += [
            "--seconds",
            20,
            "--worker-every",
            3,
            "--service-every",
            9,
            "--supervisor-every",
            12,
        ]
        found = run(*soak, "--log", pathlib.Path(folder) / "soak.log")
        assert "worker SIGKILL" in found, "no worker was killed"
    return 0


if __name__ == "__main__":
    sys.exit(main())
