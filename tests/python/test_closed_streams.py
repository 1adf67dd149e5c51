# SPDX-License-Identifier: BSD-3-Clause
"""A program may have closed its standard streams, as one that a daemon starts."""

import subprocess
import sys

import pytest
from programs import PATIENCE

SOURCE = """
import os
import isopool
with isopool.Pool(1) as pool:
    assert pool.load(lambda x: 3 * x)(2) == 6
os._exit(17)
"""


@pytest.mark.parametrize("closed", ["0<&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_a_program_with_closed_standard_streams_has_a_pool(closed: str) -> None:
    command = f'exec "$0" -c "$1" {closed}'
    ended = subprocess.run(["sh", "-c", command, sys.executable, SOURCE], timeout=PATIENCE)
    assert ended.returncode == 17
