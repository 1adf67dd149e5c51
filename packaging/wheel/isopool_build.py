# SPDX-License-Identifier: BSD-3-Clause
"""Builds the wheel: scikit-build-core, with the torch that the wheel will be used with.

A wheel works with one series of torch (2.13 of 2.13.0): the one that is installed in the environment that pip
installs into, or else the one of requirements/torch.txt. pip builds in an environment of its own, in which the
former is not visible.
"""

import functools
import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from scikit_build_core import build

ROOT = pathlib.Path(__file__).resolve().parents[2]

Settings = dict[str, list[str] | str] | None

# What the interpreter says with and without pip's environment.
_FIND_TORCH = """
import importlib.metadata, importlib.util, json
spec = importlib.util.find_spec("torch")
if spec is None or not spec.submodule_search_locations:
    print("null")
else:
    print(json.dumps([spec.submodule_search_locations[0], importlib.metadata.version("torch")]))
"""


@functools.cache
def find_torch() -> tuple[str, str] | None:
    """Folder and version of the torch that this interpreter has; None without one."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for environment in (variables, dict(os.environ)):
        told = subprocess.run(
            [sys.executable, "-c", _FIND_TORCH], env=environment, check=True, stdout=subprocess.PIPE, text=True
        )
        found = json.loads(told.stdout)
        if found:
            return found[0], found[1].split("+")[0]
    return None


def chosen_torch() -> tuple[str, str]:
    found = find_torch()
    if found is None:
        raise SystemExit(f"no torch in {sys.executable}: pip install -r {ROOT / 'requirements/torch.txt'}")
    return found


def with_torch(needed: list[str]) -> list[str]:
    """What a build needs, and a torch if the environment has none."""
    if find_torch():
        return needed
    lines = (ROOT / "requirements" / "torch.txt").read_text().splitlines()
    return needed + [line for line in lines if line and not line.startswith("#")]


def dynamic_metadata(_settings: Mapping[str, Any], _project: Mapping[str, Any]) -> dict[str, str | list[str]]:
    """What pyproject.toml does not say, for scikit-build-core."""
    version = re.search(r"project\(isopool VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    if version is None:
        raise SystemExit("no version of the project in CMakeLists.txt")
    series = ".".join(chosen_torch()[1].split(".")[:2])
    return {"version": version[1], "dependencies": [f"torch=={series}.*", "cloudpickle>=3.0"]}


def dynamic_wheel(_settings: Mapping[str, Any]) -> dict[str, bool]:
    """Which of these may differ between wheels of one source archive."""
    return {"dependencies": True}


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    return with_torch(build.get_requires_for_build_wheel(config_settings))


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    settings: dict[str, list[str] | str] = {
        "cmake.define.ISOPOOL_PYTHON_EXECUTABLE": sys.executable,
        "cmake.define.ISOPOOL_TORCH_ROOT": chosen_torch()[0],
    }
    # CMake's own choice, and not the compiler that Python was built with, which may not be here.
    os.environ.setdefault("CC", "cc")
    os.environ.setdefault("CXX", "c++")
    return str(build.build_wheel(wheel_directory, settings | (config_settings or {}), metadata_directory))


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    return str(build.prepare_metadata_for_build_wheel(metadata_directory, config_settings))


def get_requires_for_build_sdist(config_settings: Settings = None) -> list[str]:
    return with_torch(build.get_requires_for_build_sdist(config_settings))


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    return str(build.build_sdist(sdist_directory, config_settings))
