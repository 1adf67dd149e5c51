"""Each header compiles alone, with each compiler that is here.

    python tests/architecture/headers.py BUILD_FOLDER [PATTERN]

A header that uses a name which another header happens to bring along compiles on one system and not
on the next, where that other header includes less. A source file whose first line of code includes its header
shows that this header compiles alone: the build does it with its compiler, the test with clang with clang++.
The tests of public headers do the same for those. This test compiles each other header by itself, with the
flags that BUILD_FOLDER's compile_commands.json has for a source file near it, with the compiler of the
build and, the product's, with clang++ where there is one; with PATTERN only headers whose path contains it.
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

ROOT = pathlib.Path(__file__).parents[2].resolve()
FOLDERS = (
    "base", "ipc", "client", "supervisor", "worker", "cli", "batch", "python", "tools", "testing",
    "tests", "bench", "chaos", "examples",
)  # fmt: skip
# Compiled by GCC only, as in the build with clang.
NOT_WITH_CLANG = ("testing", "tests", "bench", "chaos")
# Flags with a value of their own, which concern a header that is compiled with the source file.
PRECOMPILED = ("cmake_pch", "-Winvalid-pch", "-fpch-preprocess")


def flags_of(words: list[str]) -> list[str]:
    """The compiler's flags without those of precompiled headers."""
    kept = []
    following = iter(words)
    for word in following:
        if word == "-include":
            header = next(following)
            if not any(mark in header for mark in PRECOMPILED):
                kept += [word, header]
        elif not any(mark in word for mark in PRECOMPILED):
            kept.append(word)
    return kept


def begins_with(source: pathlib.Path) -> pathlib.Path | None:
    """The header of ours that the first line of code of a source file includes."""
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", source.read_text(), flags=re.DOTALL)
    first = re.match(r'\s*#include "([^"]+)"', code)
    if first is None:
        return None
    found = [folder / first[1] for folder in (ROOT, ROOT / "include", source.parent)]
    return next((each for each in found if each.is_file()), None)


def sources(build: pathlib.Path) -> tuple[str, dict[pathlib.Path, list[str]], set[pathlib.Path]]:
    """The compiler of the build, by source file its flags, and the headers that begin a source file which the
    build compiles without precompiled or other headers before it."""
    cache = (build / "CMakeCache.txt").read_text()
    compiler = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.+)$", cache, re.MULTILINE)[1]
    found = {}
    shown = set()
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        if compiler not in words:
            continue
        # A compiler launcher may come first.
        file = (pathlib.Path(entry["directory"]) / entry["file"]).resolve()
        words = words[words.index(compiler) + 1 : words.index("-o")]
        if file.is_relative_to(ROOT):
            found[file.relative_to(ROOT)] = flags_of(words)
            header = begins_with(file) if "-include" not in words else None
            if header is not None:
                shown.add(header.relative_to(ROOT))
    return compiler, found, shown


def nearest(header: pathlib.Path, known: dict[pathlib.Path, list[str]]) -> list[str] | None:
    """The flags of the source file with the header's name, or of one in its folder or the next
    folder above that has one."""
    if "#include <Python.h>" in (ROOT / header).read_text() and header.parts[0] == "base":
        # What is compiled in the programs with a Python only.
        header = pathlib.Path("worker", "x.h")
    if header.with_suffix(".cc") in known:
        return known[header.with_suffix(".cc")]
    for folder in header.parents:
        inside = [flags for file, flags in sorted(known.items()) if file.parent == folder]
        below = [flags for file, flags in sorted(known.items()) if file.is_relative_to(folder)]
        # The flags that see most: a header may need more than one source file of its folder does.
        if folder.parts and (inside or below):
            return max(inside or below, key=len)
    return None


def main(build: pathlib.Path, pattern: str = "") -> int:
    build = build.resolve()
    compiler, known, shown = sources(build)
    compilers = [compiler]
    clang = shutil.which("clang++")
    if clang and "clang" not in pathlib.Path(compiler).name:
        compilers.append(clang)
    headers = sorted(
        path.relative_to(ROOT)
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.h")
        if pattern in str(path.relative_to(ROOT))
    )
    if not headers:
        print(f"no header's path contains {pattern!r}")
        return 1
    alone = [header for header in headers if header not in shown]

    with tempfile.TemporaryDirectory(prefix="isopool-headers-") as scratch:

        def complaint(job: tuple[int, str, pathlib.Path]) -> str:
            number, with_compiler, header = job
            flags = nearest(header, known)
            if flags is None:
                return f"{header}: no source file near it in compile_commands.json"
            unit = pathlib.Path(scratch, f"{number}.cc")
            # Twice: a second inclusion must add nothing.
            unit.write_text(f'#include "{ROOT / header}"\n' * 2)
            result = subprocess.run(
                [with_compiler, *flags, "-O0", "-fsyntax-only", "-Werror", "-w", unit],
                cwd=build, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            return result.stdout if result.returncode else ""

        jobs = [
            (number, each, header)
            for number, (each, header) in enumerate(
                (each, header)
                for each in compilers
                for header in alone
                if each != clang or header.parts[0] not in NOT_WITH_CLANG
            )
        ]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            complaints = [text for text in pool.map(complaint, jobs) if text]
    names = " and ".join(pathlib.Path(each).name for each in compilers)
    summary = (
        f"{len(headers)} headers: {len(headers) - len(alone)} begin a source file of the build, "
        f"{len(alone)} were compiled alone with {names}, {len(complaints)} complaints"
    )
    print(*complaints, summary, sep="\n")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), *sys.argv[2:]))
