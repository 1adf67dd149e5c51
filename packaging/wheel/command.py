#!python
# SPDX-License-Identifier: BSD-3-Clause
# The commands isopool and isopoold of a wheel: starts the program of this file's name, which lies in
# the package isopool. Not an entry point of Python's: that would import torch, which takes seconds.
import importlib.util
import os
import pathlib
import sys

name = pathlib.Path(sys.argv[0]).name
spec = importlib.util.find_spec("isopool")
if spec is None or spec.origin is None:
    sys.exit(f"{name}: {sys.executable} has no package isopool: {sys.executable} -m pip install isopool")
package = pathlib.Path(spec.origin).parent
program = package / {"isopool": "bin/isopool", "isopoold": "libexec/isopool/isopoold"}[name]
os.environ.setdefault("ISOPOOL_PYTHON_EXECUTABLE", sys.executable)
os.execv(program, [str(program), *sys.argv[1:]])
