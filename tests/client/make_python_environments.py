# SPDX-License-Identifier: BSD-3-Clause
"""make_python_environments.py FOLDER: interpreters and a folder, each with the module `added_library` and
its own answer. They have torch from the environment of the Python that runs this script.

  FOLDER/venv    a virtual environment with a .pth file
  FOLDER/prefix  an interpreter whose prefix is a folder of its own, as a conda environment has it
  FOLDER/target  modules alone, as pip install --target makes it
"""

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

folder = Path(sys.argv[1])
version = f"python{sys.version_info.major}.{sys.version_info.minor}"


def add_library(packages: Path, answer: str) -> None:
    packages.mkdir(parents=True, exist_ok=True)
    (packages / "added_library.py").write_text(f"answer = {answer!r}\n")


def add_environment(python: Path, answer: str) -> None:
    where = "import site; print(site.getsitepackages()[0])"
    found = subprocess.run([python, "-c", where], check=True, text=True, stdout=subprocess.PIPE)
    packages = Path(found.stdout.strip())
    add_library(packages, answer)
    (packages / "isopool.pth").write_text(sysconfig.get_path("purelib") + "\n")


venv.create(folder / "venv", symlinks=True)
add_environment(folder / "venv/bin/python", "venv")

prefix = folder / "prefix"
(prefix / "bin").mkdir(parents=True)
shutil.copy(Path(sys.executable).resolve(), prefix / "bin/python")
library = prefix / "lib" / version
library.mkdir(parents=True)
for entry in Path(sysconfig.get_path("stdlib")).iterdir():
    if not entry.name.endswith("-packages"):
        (library / entry.name).symlink_to(entry)
add_environment(prefix / "bin/python", "prefix")

add_library(folder / "target", "target")
