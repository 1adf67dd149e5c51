# SPDX-License-Identifier: BSD-3-Clause
"""The paths of this program that its workers get."""

import os
import site
import sys
import sysconfig
import zipfile


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
    folders = (os.path.realpath(path or os.getcwd()) for path in sys.path)
    return [path for path in dict.fromkeys(folders) if path not in common and _has_modules(path)]
