#!/usr/bin/env python3
"""Packages the model that chaos calls: package_model.py FILE"""

import sys
import warnings
from pathlib import Path

from chaos_model import steps
from torch.package import PackageExporter


def main() -> None:
    file = Path(sys.argv[1])
    file.parent.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore", "TypedStorage is deprecated")
    with PackageExporter(file) as exporter:
        exporter.intern("chaos_model.**")
        exporter.extern("torch.**")
        exporter.save_pickle("model", "step.pkl", steps.Step())


if __name__ == "__main__":
    main()
