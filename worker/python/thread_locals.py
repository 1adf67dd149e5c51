# SPDX-License-Identifier: BSD-3-Clause
"""The objects of threading.local in the modules that a worker begins with, by which torch, for example, keeps modes of
a thread. Each program has its own values of them."""

import sys
import threading
from typing import Any

# Their attributes in the main thread: one dict for each, as long as the object lives.
_dicts: list[dict[str, Any]] = []


def find() -> None:
    """Once, when the zygote has imported all modules."""
    found = {}
    # Without isinstance() and attributes, which may be code of objects that import a module when they are used.
    for module in list(sys.modules.values()):
        if issubclass(type(module), type(sys)):
            for value in list(object.__getattribute__(module, "__dict__").values()):
                if issubclass(type(value), threading.local):
                    found[id(value)] = threading.local.__getattribute__(value, "__dict__")
    _dicts.extend(found.values())


def dicts() -> list[dict[str, Any]]:
    return _dicts
