# SPDX-License-Identifier: BSD-3-Clause
"""What to name in ISOPOOL_PRELOAD_MODULES for a package (isopool-worker --preloads-of FILE)."""

import importlib
import os
import sys
import time
import zipfile

_EXTERN_MODULES = ".data/extern_modules"


def report(file: str) -> str:
    """Imports the modules that the package takes from the workers' Python and that a zygote does not have,
    and returns how long each took, with the setting that preloads them. Throws if `file` is no package.
    """
    lines = []
    preloads = []
    for name in _extern_modules(file):
        if name in sys.modules:
            continue
        threads = _threads()
        begin = time.perf_counter()
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever the module does
            lines.append(f"{'':>9}  {name}: not imported: {type(error).__name__}: {error}")
            continue
        seconds = time.perf_counter() - begin
        started = _threads() - threads
        if started > 0:
            lines.append(f"{seconds:7.2f} s  {name}: not preloaded: it starts {started} threads")
        else:
            lines.append(f"{seconds:7.2f} s  {name}")
            preloads.append(name)
    if preloads:
        lines.append(f"ISOPOOL_PRELOAD_MODULES={','.join(preloads)}")
    elif not lines:
        lines.append(f"{file} needs no module that a zygote does not have")
    return "".join(line + "\n" for line in lines)


def _extern_modules(file: str) -> list[str]:
    """In the order of the pickle and of the imports, as torch.package has stored them."""
    with zipfile.ZipFile(file) as archive:
        records = [name for name in archive.namelist() if name.endswith("/" + _EXTERN_MODULES)]
        if not records:
            raise ValueError(f"{file} is not a package: it has no {_EXTERN_MODULES}")
        return archive.read(records[0]).decode().split()


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))
