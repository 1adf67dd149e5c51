# SPDX-License-Identifier: BSD-3-Clause
"""The paths of this program that its workers get."""

import os
import site
import sys
import sysconfig
import zipfile

from isopool.worker.main_script import MAIN_NAMES


def _has_modules(path: str) -> bool:
    """True for a folder, a zip file (a zipapp, for example) and a folder in one."""
    if os.path.isdir(path):
        return True
    while path != os.path.dirname(path):
        if os.path.exists(path):
            return os.path.isfile(path) and zipfile.is_zipfile(path)
        path = os.path.dirname(path)
    return False


def python_paths() -> list[str]:
    """The folders and zip files of sys.path that are not those of every program of this Python: the script's, PYTHONPATH's, others.

    A worker has the latter already. With these it finds the modules that this program finds.
    """
    common = {os.path.realpath(path) for path in site.getsitepackages()}
    common |= {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    common |= {os.path.join(path, "lib-dynload") for path in common}
    return [path for path in dict.fromkeys(search_order()) if path not in common and _has_modules(path)]


def own_modules() -> dict[str, str]:
    """The files of imported modules and packages of python_paths()."""
    folders = {*python_paths()}
    found = {}
    for name, module in [*sys.modules.items()]:
        file = getattr(module, "__file__", None)
        if "." not in name and name not in MAIN_NAMES and isinstance(file, str):
            file = os.path.realpath(file)
            folder = os.path.dirname(file)
            if (os.path.dirname(folder) if hasattr(module, "__path__") else folder) in folders:
                found[name] = file
    return found


def search_order() -> list[str]:
    """The paths on which this program looks for modules, in its order."""
    return [os.path.realpath(path or os.getcwd()) for path in sys.path]
