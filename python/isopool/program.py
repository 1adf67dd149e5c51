# SPDX-License-Identifier: BSD-3-Clause
"""What workers get of this program."""

import os
import site
import sys
import sysconfig


def python_paths() -> list[str]:
    """The folders of sys.path that are not those of every program of this Python: the script's, PYTHONPATH's, others.

    A worker has the latter already. With these it finds the modules that this program finds.
    """
    common = {os.path.realpath(path) for path in site.getsitepackages()}
    common |= {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    common |= {os.path.join(path, "lib-dynload") for path in common}
    folders = (os.path.realpath(path or os.getcwd()) for path in sys.path)
    return [path for path in dict.fromkeys(folders) if path not in common and os.path.isdir(path)]
