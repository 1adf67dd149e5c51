# SPDX-License-Identifier: BSD-3-Clause
"""`python -m isopool --cmake-prefix`: for find_package(isopool) in a C++ project."""

import argparse
import pathlib

from isopool import _build


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m isopool",
        description="Says where this isopool is. Its programs are the commands isopool and isopoold.",
        epilog='In a C++ project: cmake -S . -B build -DCMAKE_PREFIX_PATH="$(python -m isopool --cmake-prefix)"',
    )
    parser.add_argument("--version", action="version", version=f"isopool {_build.VERSION}")
    parser.add_argument(
        "--cmake-prefix", action="store_true", required=True, help="print the folder for CMAKE_PREFIX_PATH"
    )
    parser.parse_args()
    print((pathlib.Path(__file__).parent / _build.PREFIX).resolve())


if __name__ == "__main__":
    main()
