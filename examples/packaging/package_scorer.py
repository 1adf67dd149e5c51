# SPDX-License-Identifier: BSD-3-Clause
"""Packages scoring/ with right or wrong rules; docs/packaging-models.md explains each.

    python package_scorer.py OUT.pt --rules none|code|mock-code|extern-code|right
"""

import argparse
import pathlib
import sys

import torch
from torch.package import PackageExporter

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from scoring.model import Scorer  # noqa: E402


def none(exporter: PackageExporter) -> None:
    pass


def code(exporter: PackageExporter) -> None:
    exporter.intern("scoring.**")


def mock_code(exporter: PackageExporter) -> None:
    exporter.mock("scoring.**")
    exporter.extern(["numpy", "tqdm"])


def extern_code(exporter: PackageExporter) -> None:
    exporter.extern(["scoring.**", "numpy", "tqdm"])


def right(exporter: PackageExporter) -> None:
    exporter.intern("scoring.**")  # our code travels with the model
    exporter.extern("numpy")  # the workers' Python has it
    exporter.mock("tqdm")  # imported, but never called in a service


RULES = {
    "none": none,
    "code": code,
    "mock-code": mock_code,
    "extern-code": extern_code,
    "right": right,
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("out", type=pathlib.Path)
    arguments.add_argument("--rules", choices=RULES, default="right")
    chosen = arguments.parse_args()
    torch.manual_seed(0)
    with PackageExporter(chosen.out) as exporter:
        RULES[chosen.rules](exporter)
        exporter.save_pickle("model", "model.pkl", Scorer())
        exporter.save_text("model", "labels.txt", "score")
    print(f"made {chosen.out}")


if __name__ == "__main__":
    main()
