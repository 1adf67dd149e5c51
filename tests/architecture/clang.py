"""The product and the code that users compile also compile with clang, without a warning.

    python tests/architecture/clang.py BUILD_FOLDER [PATTERN]

checks, with the flags of BUILD_FOLDER's compile_commands.json, each public header alone, the
product, the tools, the examples and the programs of torch::deploy's users; with PATTERN only files
whose path contains it. Clang also checks which mutex guards what (base/mutex.h). Without clang++ it
prints the reason and exits with 77.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = (
    "base/", "ipc/", "client/", "supervisor/", "worker/", "cli/", "batch/", "python/",
    "tools/", "examples/", "tests/compat/",
)  # fmt: skip
# The flags may name warnings that only GCC has.
WARNINGS = ("-Wthread-safety", "-Werror", "-Wno-unknown-warning-option")
NOT_RUN = 77
# Headers in which most of the time goes.
COMMON = """
#include <ATen/core/ivalue.h>
#ifdef MSGPACK_NO_BOOST
#include <msgpack.hpp>
#endif
#include <functional>
#include <map>
#include <thread>
"""
# For fewer files a precompiled header saves nothing.
FEW = 4

# Reads a guarded member without its mutex.
UNLOCKED = """
#include "base/mutex.h"
struct Counter {
  int read() { return value; }
  isopool::base::Mutex mutex;
  int value ISOPOOL_GUARDED_BY(mutex) = 0;
};
int use() { return Counter().read(); }
"""


def without_precompiled(flags: list[str]) -> list[str]:
    """Without the precompiled header, which is GCC's: the sources include all that they need."""
    kept = []
    following = iter(flags)
    for flag in following:
        if flag == "-include":
            next(following)
        elif flag != "-Winvalid-pch":
            kept.append(flag)
    return kept


def commands(build: pathlib.Path, pattern: str) -> dict[str, list[str]]:
    """The command line for clang++, by source file."""
    headers = str(build / "tests" / "architecture" / "public_headers")
    cache = (build / "CMakeCache.txt").read_text()
    compiler = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.+)$", cache, re.MULTILINE)[1]
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        file = str((pathlib.Path(entry["directory"]) / entry["file"]).resolve())
        inside = file.removeprefix(str(ROOT.resolve()) + "/")
        if not (inside.startswith(FOLDERS) or file.startswith(headers)) or pattern not in inside:
            continue
        words = shlex.split(entry["command"])
        # A compiler launcher may come first.
        flags = without_precompiled(words[words.index(compiler) + 1 : words.index("-o")])
        found[file] = ["clang++", *flags, "-O0", "-fsyntax-only", *WARNINGS, file]
    return found


def precompile(todo: dict[str, list[str]], folder: pathlib.Path) -> None:
    """Adds common headers, precompiled, to the command lines of files with torch that share their flags.

    GCC compiles the same files without them, so each of them includes all that it needs.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for file, (_, *flags, _) in todo.items():
        if any("torch/include" in flag for flag in flags):
            groups.setdefault(tuple(flags), []).append(file)
    header = folder / "common.h"
    header.write_text(COMMON)

    def use(number: int, flags: tuple[str, ...]) -> None:
        made = folder / f"{number}.pch"
        # Without -fsyntax-only, which would write nothing.
        kept = [flag for flag in flags if flag not in (*WARNINGS, "-fsyntax-only")]
        kept.append("-fpch-instantiate-templates")
        command = ["clang++", *kept, "-x", "c++-header", header, "-o", made]
        if subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0:
            for file in groups[flags]:
                todo[file][1:1] = ["-include-pch", str(made)]

    worthwhile = [flags for flags, files in groups.items() if len(files) >= FEW]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(use, range(len(worthwhile)), worthwhile))


def finds_unlocked_use() -> bool:
    """False if clang ignores base/mutex.h, so that the check could not fail."""
    command = ["clang++", "-std=c++20", "-x", "c++", "-fsyntax-only", *WARNINGS, "-I", ROOT, "-"]
    result = subprocess.run(command, input=UNLOCKED, stderr=subprocess.PIPE, text=True)
    return result.returncode != 0 and "requires holding mutex" in result.stderr


def main(build: pathlib.Path, pattern: str = "") -> int:
    if shutil.which("clang++") is None:
        print("no clang++ here; on Debian: apt-get install clang")
        return NOT_RUN
    if not finds_unlocked_use():
        print("clang does not find the use of a guarded member without its mutex")
        return 1
    build = build.resolve()
    todo = commands(build, pattern)
    if not todo:
        print(f"nothing to compile in {build}/compile_commands.json")
        return 1

    def complaint(file: str) -> str:
        result = subprocess.run(
            todo[file], cwd=build, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        return result.stdout if result.returncode else ""

    with tempfile.TemporaryDirectory(prefix="isopool-clang-") as folder:
        precompile(todo, pathlib.Path(folder))
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            complaints = [text for text in pool.map(complaint, todo) if text]
    print(*complaints, f"{len(todo)} files, {len(complaints)} with complaints", sep="\n")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), *sys.argv[2:]))
