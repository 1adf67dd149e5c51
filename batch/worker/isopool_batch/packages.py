# SPDX-License-Identifier: BSD-3-Clause
"""Packages that only some jobs need, imported at their first use."""

import importlib
from typing import Any


def need(module: str, purpose: str) -> Any:
    """Imports a module. Raises an ImportError with the command that installs its package."""
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # An incomplete installation lacks another module: its own message is the useful one.
        if (error.name or "").partition(".")[0] != package:
            raise
        raise ImportError(f"{purpose} needs {package}: pip install {package}", name=package) from None


def pyarrow() -> Any:
    return need("pyarrow", "Parquet")


def parquet() -> Any:
    return need("pyarrow.parquet", "Parquet")
