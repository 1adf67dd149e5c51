# SPDX-License-Identifier: BSD-3-Clause
"""Questions about modules."""

import importlib.util
import sys


def find_missing(names: list[str]) -> list[str]:
    """Those that can't be imported here. Packages above them are imported, they themselves not."""
    return [name for name in names if not _is_there(name)]


def _is_there(name: str) -> bool:
    if name in sys.modules:
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except Exception:
        return False
