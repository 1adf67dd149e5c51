# SPDX-License-Identifier: BSD-3-Clause
"""Compares what a library exports with its list in this folder: see README.md."""

import argparse
import difflib
import pathlib
import re
import subprocess
import sys

INTERNAL = re.compile(r"isopool::(client|ipc|base|batch)::")


def exported(library: str) -> list[tuple[str, str]]:
    """Each exported symbol: its kind as nm has it, and its demangled name."""
    names = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--demangle", library],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    found = []
    for line in names.splitlines():
        kind, name = line[17:].split(" ", 1)
        found.append((kind, name))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", help="libisopool.so or libisopool-batch.so")
    parser.add_argument("--write", action="store_true", help="make the list anew")
    options = parser.parse_args()
    name = pathlib.Path(options.library).name.partition(".so")[0]
    list_file = pathlib.Path(__file__).parent / f"{name}.txt"
    symbols = exported(options.library)
    strong = sorted({symbol for kind, symbol in symbols if kind in "TDBR"})
    if options.write:
        list_file.write_text("".join(symbol + "\n" for symbol in strong))
    foreign = sorted(
        {symbol for _, symbol in symbols if INTERNAL.search(symbol) or "isopool::" not in symbol}
    )
    for symbol in foreign:
        print(f"exported, but not of the public interface: {symbol}")
    listed = list_file.read_text().splitlines()
    difference = list(difflib.unified_diff(listed, strong, list_file.name, "library", lineterm="", n=0))
    print("\n".join(difference))
    print(f"{len(symbols)} exported symbols, {len(strong)} of them strong; the list has {len(listed)}")
    return 1 if foreign or difference or not strong else 0


if __name__ == "__main__":
    sys.exit(main())
