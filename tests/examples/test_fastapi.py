"""The FastAPI service: several server processes on one pool answer as a model in each, and outlive a killed worker."""

import json
import os
import pathlib
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
PROGRAMS = pathlib.Path(os.environ["ISOPOOL_PROGRAMS"])
PACKAGES = pathlib.Path(os.environ["ISOPOOL_PACKAGES"])


def run(*command: object) -> str:
    result = subprocess.run(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=280
    )
    assert result.returncode == 0, f"{command}:\n{result.stdout}\n{result.stderr}"
    print(result.stderr)
    return result.stdout


def test_server_processes_share_one_pool_and_outlive_a_killed_worker() -> None:
    run(sys.executable, EXAMPLES / "package_sentence_encoder.py", "--out", PACKAGES)
    output = run(
        sys.executable, EXAMPLES / "fastapi" / "measure.py", PACKAGES / "sentence_encoder.pt",
        "--isopoold", PROGRAMS / "isopoold", "--servers", 2, "--workers", 2, "--json",
    )  # fmt: skip
    figures = json.loads(output)
    print(figures)
    assert figures["same_answers"]
    assert figures["pool"]["killed"] == 1
    # The call that the worker ran; none if it ran none.
    assert figures["pool"]["failed_during_the_kill"] <= 1
    assert figures["pool"]["failed_after_it"] == 0
