# SPDX-License-Identifier: BSD-3-Clause
"""Compares what a libisopool.so exports with exported.txt: see README.md."""

import argparse
import difflib
import pathlib
import re
import subprocess
import sys

LIST = pathlib.Path(__file__).parent / "exported.txt"
INTERNAL = re.compile(r"isopool::(client|ipc|base)::")


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
    parser.add_argument("library", help="libisopool.so")
    parser.add_argument("--write", action="store_true", help="make the list anew")
    options = parser.parse_args()
    symbols = exported(options.library)
    strong = sorted({name for kind, name in symbols if kind in "TDBR"})
    if options.write:
        LIST.write_text("".join(name + "\n" for name in strong))
    foreign = sorted(
        {name for _, name in symbols if INTERNAL.search(name) or "isopool::" not in name}
    )
    for name in foreign:
        print(f"exported, but not of the public interface: {name}")
    listed = LIST.read_text().splitlines()
    difference = list(difflib.unified_diff(listed, strong, "exported.txt", "library", lineterm="", n=0))
    print("\n".join(difference))
    print(f"{len(symbols)} exported symbols, {len(strong)} of them strong; the list has {len(listed)}")
    return 1 if foreign or difference or not strong else 0


if __name__ == "__main__":
    sys.exit(main())
