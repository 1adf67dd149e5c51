#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A round trip through the rings takes as many instructions as EXPECTED.

On a machine that also does other work, times are useless, but the number of instructions does not
change. valgrind counts them, once for N round trips and once for 2 N: the difference is exactly N
round trips. Fails if the number differs by more than ALLOWED. Then either fix the code, or change
the figure here and give the reason in the commit.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile

# Publish, peek, taken, start, complete, peek and consumed with 64 bytes each way, as g++
# compiles them for Release, from this major version on. 68 of them ask for the current processor, which takes more of them
# under valgrind; about 40 check whether a crash point is requested; the others are four copies of a
# slot's head and payload, into the slots and out of them.
EXPECTED = {12: 397, 16: 370}
# Another compiler of the same age may differ by this much; a lock or an allocation costs more.
ALLOWED = 0.05
ROUND_TRIPS = 2000


def count(program: str, round_trips: int) -> int:
    with tempfile.NamedTemporaryFile(prefix="isopool-callgrind-") as profile:
        finished = subprocess.run(
            [
                "valgrind",
                "--tool=callgrind",
                f"--callgrind-out-file={profile.name}",
                program,
                str(round_trips),
            ],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
        )
    collected = re.search(r"Collected : (\d+)", finished.stdout)
    if finished.returncode != 0 or collected is None:
        sys.exit(f"valgrind could not count:\n{finished.stdout}")
    return int(collected[1])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program", help="ring_round_trips")
    parser.add_argument("--build-type", required=True, help="how it was compiled")
    parser.add_argument("--compiler", required=True, help="the version of g++ that compiled it")
    options = parser.parse_args()
    if options.build_type != "Release":
        print(f"the figure is of a Release build, and this is {options.build_type}")
        return 77
    if shutil.which("valgrind") is None:
        print("no valgrind here: apt-get install valgrind")
        return 77
    extra = count(options.program, 2 * ROUND_TRIPS) - count(options.program, ROUND_TRIPS)
    each = extra / ROUND_TRIPS
    major = int(options.compiler.split(".")[0])
    expected = EXPECTED[max((first for first in EXPECTED if first <= major), default=min(EXPECTED))]
    print(f"{each:.1f} instructions for a round trip; expected {expected} +- {ALLOWED:.0%}")
    return 0 if abs(each - expected) <= ALLOWED * expected else 1


if __name__ == "__main__":
    sys.exit(main())
