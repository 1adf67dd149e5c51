"""The code that users compile also compiles with clang, without a warning.

    python tests/architecture/clang.py BUILD_FOLDER [PATTERN]

checks, with the flags of BUILD_FOLDER's compile_commands.json, each public header alone, the
client, the tools, the examples and the programs of torch::deploy's users; with PATTERN only files
whose path contains it. Without clang++ it prints the reason and exits with 77.
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

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = ("client/", "tools/", "examples/", "tests/compat/")
NOT_RUN = 77


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
        flags = words[words.index(compiler) + 1 : words.index("-o")]
        found[file] = ["clang++", *flags, "-O0", "-fsyntax-only", "-Werror", file]
    return found


def main(build: pathlib.Path, pattern: str = "") -> int:
    if shutil.which("clang++") is None:
        print("no clang++ here; on Debian: apt-get install clang")
        return NOT_RUN
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

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = [text for text in pool.map(complaint, todo) if text]
    print(*complaints, f"{len(todo)} files, {len(complaints)} with complaints", sep="\n")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), *sys.argv[2:]))
