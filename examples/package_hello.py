#!/usr/bin/env python3
"""Packages the tiny model of hello.cc: the smallest torch.package that isopool can run."""

import argparse
from pathlib import Path

from example_models.hello import Hello
from package_file import write_package


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="gets hello.pt")
    file = parser.parse_args().out / "hello.pt"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_package(file, Hello(), intern=["example_models.**"])
    print(f"wrote {file}; now: hello {file}")


if __name__ == "__main__":
    main()
