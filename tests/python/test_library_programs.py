# SPDX-License-Identifier: BSD-3-Clause
"""Values of libraries that cross, and libraries that calls use, compared with concurrent.futures and loky."""

import pathlib

import pytest
from library_programs import DIFFERENCES, PROGRAMS
from peers import check_same


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_the_same_as_with_its_peers(name: str, tmp_path: pathlib.Path) -> None:
    check_same(name, PROGRAMS[name], DIFFERENCES, tmp_path)
