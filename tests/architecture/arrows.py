"""Which folder may include what, and a checker for it.

    python tests/architecture/arrows.py [FOLDER]

prints every include in the repository (or FOLDER) that breaks the rules below, and fails if there
is one. test_arrows.py shows that each rule can fail.
"""

import dataclasses
import functools
import pathlib
import re
import sys
from collections.abc import Iterator

# Which folders of the supervisor and of the worker each of their folders may include, besides base/
# and ipc/. Files directly in supervisor/ or worker/ may include all of its folders, and no folder
# includes them.
SUPERVISOR = {
    "supervisor/processes": [],
    "supervisor/config": ["supervisor/processes"],
    "supervisor/pool": ["supervisor/config", "supervisor/processes"],
    "supervisor/clients": ["supervisor/config", "supervisor/pool", "supervisor/processes"],
}
WORKER = {
    "worker/process": [],
    "worker/python": [],
    "worker/values": ["worker/python"],
    "worker/memory": ["worker/process", "worker/python"],
    "worker/sandbox": ["worker/memory", "worker/process", "worker/python"],
    "worker/backends": ["worker/memory", "worker/python", "worker/sandbox"],
    "worker/serve": [
        "worker/backends",
        "worker/memory",
        "worker/process",
        "worker/python",
        "worker/sandbox",
        "worker/values",
    ],
}

# The rooms of batch/.
BATCH = {
    "batch/plan": [],
    "batch/journal": ["batch/plan"],
    "batch/runner": ["batch/journal", "batch/plan"],
    "batch/command": ["batch/journal", "batch/plan", "batch/runner"],
}

# The rooms of client/, each with those that it may include.
CLIENT = {
    "client/program": [],
    "client/models": ["client/program"],
    "client/transport": ["client/models", "client/program"],
    "client/control": ["client/models", "client/program", "client/transport"],
    "client/pool": ["client/control", "client/models", "client/program", "client/transport"],
    "client/api": [
        "client/control",
        "client/models",
        "client/pool",
        "client/program",
        "client/transport",
    ],
}

# A folder may include itself and the folders named here. The longest matching folder rules a file.
ALLOWED = {
    "include/isopool": [],
    "include/compat": ["include/isopool"],
    "base": [],
    "ipc": ["base"],
    "ipc/tensor": ["base", "ipc"],
    "client": ["include/isopool", "base", "ipc", "ipc/tensor", *CLIENT],
    **{
        folder: ["include/isopool", "base", "ipc", "ipc/tensor", *others]
        for folder, others in CLIENT.items()
    },
    "supervisor": ["base", "ipc", *SUPERVISOR],
    **{folder: ["base", "ipc", *others] for folder, others in SUPERVISOR.items()},
    "worker": ["base", "ipc", "ipc/tensor", *WORKER],
    **{folder: ["base", "ipc", "ipc/tensor", *others] for folder, others in WORKER.items()},
    "service": ["include/isopool"],
    "batch": ["include/isopool", "base", *BATCH],
    **{folder: ["include/isopool", "base", *others] for folder, others in BATCH.items()},
    # Asks a supervisor without being its client, and starts without torch.
    "cli": ["base", "ipc"],
    # A program of its own that loads a model, as any user's program.
    "cli/model_file": ["include/isopool", "base", "cli"],
    # Locks whose rules clang checks.
    "python": ["include/isopool", "base"],
    "tools": ["include/isopool"],
    "examples": ["include/isopool", "include/compat"],
    # The programs that measure one mechanism by itself include ipc/.
    "bench": ["include/isopool", "include/compat", "base", "ipc", "ipc/tensor"],
    # What tests, chaos and benchmarks share.
    "testing": ["base", "ipc"],
    # Attacks what a user has; finds its processes and its plain workers like the tests.
    "chaos": ["include/isopool", "base", "ipc", "testing"],
    # A test of the whole (tests/package, tests/compat, ...) is a user like any other, and may read
    # what processes have agreed on. tests/<folder> may also include <folder> and what that folder
    # may include.
    "tests": ["include/isopool", "include/compat", "base", "ipc", "ipc/tensor", "testing"],
    # Runs or models the deciding code of supervisor/ and client/, or makes its calls fail.
    "tests/simulation": ["base", "ipc", "supervisor", *SUPERVISOR, *CLIENT, "testing", "tests"],
    "tests/model": ["base", "ipc", "supervisor", *SUPERVISOR, "testing", "tests"],
    "tests/fault_injection": [
        "include/isopool",
        "base",
        "ipc",
        "supervisor",
        *SUPERVISOR,
        *CLIENT,
        "testing",
        "tests",
    ],
    # Feeds all code that reads bytes of other processes.
    "tests/fuzz": ["include/isopool", "base", "ipc", "ipc/tensor", *CLIENT, "testing", "tests"],
}

# The folders that exchange the messages of a header. Other code of the product does not include it;
# tests, and what they share, act as any process.
AUDIENCES = {
    "ipc/control/client_messages.h": ["client", "cli", "supervisor"],
    "ipc/control/operator_messages.h": ["cli", "supervisor"],
    "ipc/control/worker_messages.h": ["supervisor", "worker"],
    "ipc/control/zygote_messages.h": ["supervisor", "worker"],
}
PRODUCT = ["base", "ipc", "client", "supervisor", "worker", "cli"]

# How our includes begin, and the folder in which they are found.
SPELLINGS = {
    "isopool/": "include/",
    "multipy/": "include/compat/",
    "torch/deploy.h": "include/compat/",
    "torch/csrc/deploy/": "include/compat/",
    **{folder + "/": "" for folder in ALLOWED if not folder.startswith("include/")},
}

TORCH = re.compile(r"(ATen|c10|torch|caffe2)/|pybind11/")
PYTHON = re.compile(r"Python\.h$|pybind11/|torch/(extension|python)\.h$|torch/csrc/(jit/)?python/")
LOGGING = re.compile(r"(spdlog|fmt)/")

# bench/ calls a model in its own process through CPython's C API, to compare with.
MAY_SEE_PYTHON = ["worker", "python", "tests/worker", "bench"]
# For two of these: what differs between versions of Python, and the parts of an object.
PYTHON_IN_BASE = ["base/python_parts.h", "base/python_version.h"]
MUST_NOT_SEE_TORCH = ["base", "ipc", "supervisor", *SUPERVISOR, "cli"]

INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Tree:
    """A checkout. Paths in here are relative to its root and written with slashes."""

    root: pathlib.Path

    @functools.cache
    def sources(self) -> list[str]:
        top_folders = sorted({folder.split("/")[0] for folder in ALLOWED})
        return sorted(
            str(path.relative_to(self.root))
            for folder in top_folders
            for path in (self.root / folder).rglob("*")
            if path.suffix in (".h", ".cc") and path.is_file()
        )

    @functools.cache
    def includes(self, source: str) -> list[str]:
        return INCLUDE.findall((self.root / source).read_text())

    def ours(self, include: str) -> str | None:
        """The file of this repository that an include path names, or None for a foreign header."""
        for spelling, prefix in SPELLINGS.items():
            if include.startswith(spelling) and (self.root / prefix / include).is_file():
                return prefix + include
        return None

    @functools.cache
    def sees(self, source: str) -> frozenset[str]:
        """All foreign headers that a file includes, directly or through our headers."""
        seen: set[str] = set()
        waiting = [source]
        visited = set(waiting)
        while waiting:
            for include in self.includes(waiting.pop()):
                mine = self.ours(include)
                if mine is None:
                    seen.add(include)
                elif mine not in visited:
                    visited.add(mine)
                    waiting.append(mine)
        return frozenset(seen)


def folder_of(path: str, folders: list[str]) -> str | None:
    inside = [folder for folder in folders if path.startswith(folder + "/")]
    return max(inside, key=len, default=None)


def allowed_for(source: str) -> list[str]:
    folder = folder_of(source, list(ALLOWED))
    assert folder is not None, source
    allowed = [folder, *ALLOWED[folder]]
    if folder == "tests":
        tested = folder_of(source.removeprefix("tests/"), list(ALLOWED))
        if tested is not None:
            allowed += [tested, *ALLOWED[tested]]
    return allowed


def wrong_arrows(tree: Tree, source: str) -> Iterator[str]:
    for include in tree.includes(source):
        beside = pathlib.PurePosixPath(source).parent / include
        if include.startswith(".") or "/../" in include:
            yield f"{source} includes {include}: name it from the repository's root"
            continue
        target = tree.ours(include)
        if target is None:
            if (tree.root / beside).is_file():
                yield f"{source} includes {include}: name it from the repository's root"
            continue
        if folder_of(target, list(ALLOWED)) not in allowed_for(source):
            yield f"{source} includes {target}: {folder_of(source, list(ALLOWED))}/ may not"


def wrong_audience(tree: Tree, source: str) -> Iterator[str]:
    folder = folder_of(source, PRODUCT)
    for include in tree.includes(source):
        audience = AUDIENCES.get(include)
        if folder and audience and folder not in audience:
            names = " and ".join(audience)
            yield f"{source} includes {include}: only {names} exchange its messages"


def wrong_sight(tree: Tree, source: str) -> Iterator[str]:
    torch = sorted(filter(TORCH.match, tree.sees(source)))
    python = sorted(filter(PYTHON.match, tree.sees(source)))
    logging = sorted(filter(LOGGING.match, tree.sees(source)))
    folder = folder_of(source, list(ALLOWED))
    if torch and folder in MUST_NOT_SEE_TORCH:
        yield f"{source} sees {torch[0]}: {folder}/ is free of torch"
    if python and folder_of(source, MAY_SEE_PYTHON) is None and source not in PYTHON_IN_BASE:
        yield f"{source} sees {python[0]}: only {', '.join(MAY_SEE_PYTHON)} may see Python's C API"
    if torch and logging:
        yield f"{source} sees {torch[0]} and {logging[0]}: torch brings another fmt"


def wrong_manners(tree: Tree, source: str) -> Iterator[str]:
    text = (tree.root / source).read_text()
    if not text.startswith("// SPDX-License-Identifier: BSD-3-Clause\n"):
        yield f"{source}: the first line is not the licence line"
    if source.endswith(".h"):
        if "#pragma once" not in text:
            yield f"{source}: no #pragma once"
        return
    own_header = source.removesuffix(".cc") + ".h"
    if (tree.root / own_header).is_file():
        first = next(iter(tree.includes(source)), "")
        if tree.ours(first) != own_header:
            yield f"{source}: its own header does not come first"


def missing_readmes(tree: Tree) -> Iterator[str]:
    rooms = [*CLIENT, *SUPERVISOR, *WORKER]
    folders = {source.split("/")[0] for source in tree.sources()}
    folders |= {folder_of(source, rooms) for source in tree.sources()} - {None}
    for folder in sorted(folders):
        if not (tree.root / folder / "README.md").is_file():
            yield f"{folder}/ has no README.md"


def violations(root: pathlib.Path) -> list[str]:
    tree = Tree(root)
    found = [
        violation
        for source in tree.sources()
        for rule in (wrong_arrows, wrong_audience, wrong_sight, wrong_manners)
        for violation in rule(tree, source)
    ]
    return found + list(missing_readmes(tree))


if __name__ == "__main__":
    default_root = pathlib.Path(__file__).resolve().parents[2]
    problems = violations(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default_root)
    print(*problems, sep="\n", end="\n" if problems else "")
    sys.exit(1 if problems else 0)
