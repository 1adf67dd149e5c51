# SPDX-License-Identifier: BSD-3-Clause
"""The Ray example: one actor's pool answers every call but the one whose process crashes.

Exits with 77 and prints the reason if this Python has no Ray.
"""

import importlib.util
import pathlib
import re
import subprocess
import sys

PROGRAM = pathlib.Path(__file__).parents[2] / "examples" / "ray" / "pool_actor.py"
PATIENCE = 240
NOT_RUN = 77


def main() -> int:
    if importlib.util.find_spec("ray") is None:
        print("this Python has no Ray (examples/ray/README.md)")
        return NOT_RUN
    run = subprocess.run([sys.executable, PROGRAM, "--calls", "20"], text=True, capture_output=True, timeout=PATIENCE)
    assert run.returncode == 0, run.stderr
    expected = r"^lost: signal 11\n19 answered, 1 lost, 0 bytes copied by calls$"
    assert re.search(expected, run.stdout, re.MULTILINE), run.stdout
    return 0


if __name__ == "__main__":
    sys.exit(main())
