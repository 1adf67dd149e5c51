"""scripts/try-docs runs the pages of a checkout in any folder, and leaves the checkout unchanged.

If no copy of the file system can be made, it prints the reason and exits with 77.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
NOT_RUN = 77
PAGE = "# A page\n\n```sh\ncat README.md >written\n```\n"


def tried(repository: pathlib.Path, through: list[str]) -> subprocess.CompletedProcess[str]:
    """Makes a small checkout there and runs its try-docs; `through` is a command that starts it."""
    page = repository.parent / "page"
    page.write_text(PAGE)
    commands = f"""
        cd {repository} && mkdir scripts docs examples && cp {ROOT}/scripts/try-docs scripts/
        cp {page} README.md && touch docs/README.md examples/README.md
        scripts/try-docs
        code=$?
        test ! -e written || code=99
        exit $code"""
    return subprocess.run(
        [*through, "bash", "-c", commands],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def main() -> int:
    if os.geteuid() != 0:
        print("only root can make a copy of the file system")
        return NOT_RUN
    own_mount = ["unshare", "--mount", "bash", "-c", 'mount -t tmpfs tmpfs "$0" && exec "$@"']
    skipped = False
    for base, mounted in (("/tmp", False), ("/var/tmp", False), ("/var/tmp", True)):
        folder = pathlib.Path(tempfile.mkdtemp(dir=base))
        repository = folder / "repository"
        repository.mkdir()
        try:
            through = [*own_mount, str(repository)] if mounted else []
            ran = tried(repository, through)
        finally:
            shutil.rmtree(folder)
        where = base + (", a file system of its own" if mounted else "")
        print(f"in {where}: {ran.returncode}\n{ran.stdout}")
        skipped = skipped or ran.returncode == NOT_RUN
        if ran.returncode == NOT_RUN and "not run: " in ran.stdout:
            continue
        if ran.returncode != 0 or "README.md: 1 commands ran" not in ran.stdout:
            return 1
    return NOT_RUN if skipped else 0


if __name__ == "__main__":
    sys.exit(main())
