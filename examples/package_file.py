"""Writes a model as a torch.package, which isopool and torch.package can load."""

import os
import warnings
from pathlib import Path

from torch.package.package_exporter import PackageExporter


def write_package(
    file: Path, model: object, intern: list[str], extern: list[str] | None = None
) -> None:
    """Writes `model` so that loadPickle("model", "model.pkl") loads it.

    intern: modules whose code goes into the package; extern: modules that the worker's Python has.
    Renames a temporary file to `file`, so that a reader of `file` never sees an incomplete package.
    """
    # torch's exporter itself uses TypedStorage, and warns.
    warnings.filterwarnings("ignore", message="TypedStorage is deprecated")
    unfinished = file.with_suffix(".unfinished")
    with PackageExporter(unfinished) as exporter:
        exporter.intern(intern)
        exporter.extern(extern or [])
        exporter.save_pickle("model", "model.pkl", model)
    os.replace(unfinished, file)
