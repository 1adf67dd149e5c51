#!/usr/bin/env python3
"""Checks a Promela model with spin, and prints how many states it has.

    check_promela.py channel.pml --include build/tests/model
    check_promela.py channel.pml --include build/tests/model -D WITHOUT_WAKE --finds-an-error

The second form is for deliberate mistakes: exit code 0 if spin finds the mistake.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# Each step of a check ends within seconds; if a search does not, the model is wrong.
STEP_SECONDS = 60


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="the .pml file")
    parser.add_argument("--include", type=Path, help="folder of the files that it includes")
    parser.add_argument("-D", dest="defines", action="append", default=[], metavar="NAME")
    parser.add_argument("--finds-an-error", action="store_true", help="the model must not hold")
    return parser.parse_args()


def run(command: list[str], folder: Path) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=STEP_SECONDS
        )
    except subprocess.TimeoutExpired:
        sys.exit(f"{command[0]} did not end within {STEP_SECONDS} s: make the model smaller")
    except FileNotFoundError:
        sys.exit(f"no {command[0]} here: apt-get install spin gcc")
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def check(arguments: argparse.Namespace, folder: Path) -> tuple[int, int, str]:
    """Returns the number of errors, the number of states, and the output of the search."""
    shutil.copy(arguments.model, folder)
    if arguments.include:
        for included in arguments.include.glob("*.pml"):
            shutil.copy(included, folder)
    defines = [f"-D{name}" for name in arguments.defines]
    run(["spin", "-a", *defines, arguments.model.name], folder)
    run(["cc", "-w", "-o", "search", "pan.c"], folder)
    printed = run(["./search", "-a", "-m1000000"], folder)
    errors = re.search(r"errors: (\d+)", printed)
    states = re.search(r"(\d+) states, stored", printed)
    if not errors or not states or "max search depth too small" in printed:
        sys.exit(f"the search did not go through:\n{printed}")
    return int(errors[1]), int(states[1]), printed


def main() -> int:
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        errors, states, printed = check(arguments, Path(folder))
    name = " ".join([arguments.model.stem, *arguments.defines])
    print(f"{name}: {states} states, {'holds' if errors == 0 else 'does not hold'}")
    if (errors > 0) == arguments.finds_an_error:
        return 0
    print(printed)
    return 1


if __name__ == "__main__":
    sys.exit(main())
