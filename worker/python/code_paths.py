# SPDX-License-Identifier: BSD-3-Clause
"""The files and folders from which the zygote takes code, which it runs without a sandbox."""

import glob
import os
import site
import sys
from collections.abc import Iterator

_MOST_LINKS = 40  # the kernel's limit
_SUPERVISORS_FILES = "ISOPOOL_SUPERVISOR_FILES"


def places(libraries: list[bytes]) -> list[bytes]:
    """Each path where a change affects the code that the next zygote runs: folders of modules,
    loaded modules and libraries, `libraries`, the files that start and configure Python and the
    supervisor, and the symbolic links on the way to them. The paths are absolute and free of links,
    except that the path of a link ends with the link itself.
    """
    found: dict[bytes, None] = {}
    for name in _names():
        found.update(dict.fromkeys(_on_the_way_to(os.fsencode(os.path.abspath(name)))))
    for library in libraries:
        found.update(dict.fromkeys(_on_the_way_to(library)))
    return list(found)


def _names() -> Iterator[str]:
    yield from (name for name in sys.path if name)
    yield from _later_folders()
    yield from filter(None, os.environ.get(_SUPERVISORS_FILES, "").split(":"))
    yield os.path.join(sys.prefix, "pyvenv.cfg")
    yield from (name for name in (sys.executable, sys.pycache_prefix) if name)
    for variable in ("LD_LIBRARY_PATH", "LD_PRELOAD"):
        words = os.environ.get(variable, "").replace(" ", ":").split(":")
        yield from (word for word in words if word.startswith("/"))
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.startswith("/"):
            yield file
    yield from _loaded_libraries()


def _later_folders() -> Iterator[str]:
    """Folders that the next zygote has on sys.path if they exist by then."""
    for folder in site.getsitepackages():
        yield folder
        for name in glob.glob(os.path.join(glob.escape(folder), "*.pth")):
            with open(name, encoding="utf-8", errors="surrogateescape") as file:
                for line in file:
                    if line.strip() and not line.startswith(("#", "import ", "import\t")):
                        yield os.path.join(folder, line.strip())


def _loaded_libraries() -> set[str]:
    found = set()
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            fields = line.rstrip("\n").split(maxsplit=5)
            if len(fields) == 6 and "x" in fields[1] and fields[5].startswith("/"):
                found.add(fields[5])
    return found


def _on_the_way_to(name: bytes) -> Iterator[bytes]:
    """The path of the file and of each link to it: a changed link leads to another file."""
    place = b"/"
    rest = name.split(b"/")[::-1]
    links = 0
    while rest:
        part = rest.pop()
        if part in (b"", b"."):
            continue
        if part == b"..":
            place = os.path.dirname(place)
            continue
        below = os.path.join(place, part)
        if links < _MOST_LINKS and os.path.islink(below):
            links += 1
            yield below
            target = os.readlink(below)
            place = b"/" if target.startswith(b"/") else place
            rest += target.split(b"/")[::-1]
        else:
            place = below
    yield place
