"""Prints as JSON what CMake needs to know of the interpreter that runs this file.

An argument is the folder of the torch package; without it, that is the one that the interpreter imports.
"""

import importlib.util
import json
import pathlib
import sys
import sysconfig


def libpython() -> tuple[pathlib.Path, str]:
    library_dir = pathlib.Path(sysconfig.get_config_var("LIBDIR") or "/usr/lib")
    config_dir = pathlib.Path(sysconfig.get_config_var("LIBPL") or library_dir)
    multiarch_dir = library_dir / (sysconfig.get_config_var("MULTIARCH") or "")
    # LDLIBRARY is the shared library where there is one, LIBRARY always the archive.
    for variable in ("LDLIBRARY", "LIBRARY"):
        name = sysconfig.get_config_var(variable) or ""
        for folder in (library_dir, multiarch_dir, config_dir):
            if name and (folder / name).is_file():
                return folder / name, "static" if name.endswith(".a") else "shared"
    # Only a program that embeds Python needs it.
    return pathlib.Path(), "none"


def include_dir() -> str:
    folder = sysconfig.get_path("include")
    # A virtual environment on some systems names its own, empty include folder first.
    for candidate in (sysconfig.get_config_var("INCLUDEPY"), folder):
        if candidate and pathlib.Path(candidate, "Python.h").is_file():
            return candidate
    sys.exit(f"no Python.h in {folder} (Debian: apt install python3-dev)")


def torch_root() -> str:
    if sys.argv[1:]:
        return sys.argv[1]
    # Finding torch is enough; importing it takes seconds.
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        sys.exit(f"no torch in {sys.executable} (scripts/test installs one)")
    return str(pathlib.Path(spec.submodule_search_locations[0]))


if sys.version_info < (3, 11):
    sys.exit(f"Python {sysconfig.get_python_version()} is too old: 3.11 or newer is needed")

if sysconfig.get_config_var("Py_GIL_DISABLED"):
    sys.exit(
        f"{sys.executable} is a free-threaded Python, which isopool does not support: each worker is a process of "
        "its own, so it needs no free threads, and torch's libraries for the two kinds of Python differ. Take the "
        "ordinary one"
    )

library, kind = libpython()
link_flags = f"{sysconfig.get_config_var('LIBS') or ''} {sysconfig.get_config_var('SYSLIBS') or ''}"
print(
    json.dumps(
        {
            "extension_suffix": sysconfig.get_config_var("EXT_SUFFIX"),
            "version": sysconfig.get_python_version(),
            "include_dir": include_dir(),
            "library": str(library),
            "kind": kind,
            "link_libraries": ";".join(link_flags.split()),
            "torch_root": torch_root(),
        }
    )
)
