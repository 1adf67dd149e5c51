"""Writes a model as a torch.package that isopool, or torch.package itself, can load."""

import os
import warnings
from pathlib import Path

from torch.package.package_exporter import PackageExporter


def write_package(
    file: Path, model: object, intern: list[str], extern: list[str] | None = None
) -> None:
    """Loadable with loadPickle("model", "model.pkl").

    intern: modules whose code goes into the package; extern: modules that the worker's Python has.
    Renamed into place, so whoever opens `file` finds a whole package or none.
    """
    # torch's exporter warns of its own use of TypedStorage.
    warnings.filterwarnings("ignore", message="TypedStorage is deprecated")
    unfinished = file.with_suffix(".unfinished")
    with PackageExporter(unfinished) as exporter:
        exporter.intern(intern)
        exporter.extern(extern or [])
        exporter.save_pickle("model", "model.pkl", model)
    os.replace(unfinished, file)
