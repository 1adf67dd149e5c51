"""Made the packages of this folder, each with the Python that its name states:

    python3.11 make.py; python3.13 make.py
"""

import importlib
import pathlib
import sys

from torch.package import PackageExporter

HERE = pathlib.Path(__file__).parent


def make(module: str, file: str) -> None:
    with PackageExporter(HERE / file) as exporter:
        exporter.intern(module)
        exporter.save_pickle("model", "model.pkl", importlib.import_module(module).Scoring())


version = f"{sys.version_info.major}.{sys.version_info.minor}"
make("scoring", f"python{version}.pt")
if sys.version_info >= (3, 12):
    make("newer_syntax", f"syntax_of_python{version}.pt")
