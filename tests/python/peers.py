# SPDX-License-Identifier: BSD-3-Clause
"""Runs one program with an Executor and with its peers: concurrent.futures, with fork and spawn, and loky."""

import pathlib
import subprocess
import sys

PEERS = ("fork", "spawn", "loky")

# executor() makes one of the kind that the program's first argument names.
HEADER = """
import concurrent.futures
import multiprocessing
import sys

KIND = sys.argv[1]


def executor(*arguments, **options):
    if KIND == "isopool":
        import isopool

        return isopool.Executor(*arguments, **options)
    if KIND == "loky":
        from joblib.externals.loky import ProcessPoolExecutor

        return ProcessPoolExecutor(*arguments, **options)
    return concurrent.futures.ProcessPoolExecutor(
        *arguments, mp_context=multiprocessing.get_context(KIND), **options)

"""


def script(program: str, folder: pathlib.Path) -> pathlib.Path:
    """Writes a program. Its part before "main:" is the top level, the other one is guarded by its __name__."""
    lines = [line[8:] for line in program.splitlines()]
    at = lines.index("main:")
    guarded = ["", 'if __name__ == "__main__":', *(f"    {line}" for line in lines[at + 1 :])]
    path = folder / "script.py"
    path.write_text(HEADER + "\n".join([*lines[:at], *guarded]) + "\n")
    return path


def outcome(path: pathlib.Path, kind: str, folder: pathlib.Path) -> str:
    # The kind is one of the arguments that a program prints.
    ended = subprocess.run(
        [sys.executable, path, kind], cwd=folder, text=True, capture_output=True, timeout=120
    )
    return (ended.stdout if ended.returncode == 0 else ended.stdout + ended.stderr).replace(repr(kind), "KIND")


def check_same(name: str, program: str, differences: dict[tuple[str, str], str], folder: pathlib.Path) -> None:
    """The program prints the same as with its peers, unless a row (name, peer) has the reason."""
    path = script(program, folder)
    own = outcome(path, "isopool", folder)
    assert own and "Traceback" not in own, own
    for peer in PEERS:
        other = outcome(path, peer, folder)
        if (name, peer) in differences:
            assert other != own, f"{peer} does the same: remove its row"
        else:
            assert own == other, f"{peer}:\n{other}\nisopool:\n{own}"
