"""Writes the torch.package that caller calls: python package_doubled.py FILE."""

import sys

from doubled import Doubled
from torch.package.package_exporter import PackageExporter


def main() -> None:
    with PackageExporter(sys.argv[1]) as exporter:
        exporter.intern("doubled")
        exporter.save_pickle("model", "model.pkl", Doubled())


if __name__ == "__main__":
    main()
