"""scripts/docs makes a page for every public header, and fails at a wrong comment.

Without doxygen it prints the reason and exits with 77.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
NOT_RUN = 77


def made(script: pathlib.Path, folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [script, folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def main() -> int:
    if shutil.which("doxygen") is None:
        print("no doxygen here; on Debian: apt-get install doxygen")
        return NOT_RUN
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        result = made(ROOT / "scripts" / "docs", folder / "pages")
        assert result.returncode == 0, result.stdout
        index = (folder / "pages" / "html" / "files.html").read_text()
        headers = [path for path in (ROOT / "include").rglob("*.h")]
        assert headers
        for header in headers:
            assert f">{header.name}<" in index, f"no page of {header}"

        copy = folder / "copy"
        for part in ("docs/Doxyfile", "scripts/docs"):
            (copy / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / part, copy / part)
        shutil.copytree(ROOT / "include", copy / "include")
        wrong = copy / "include" / "isopool" / "package.h"
        text = wrong.read_text()
        begin = "class ISOPOOL_EXPORT Package {"
        wrong.write_text(text.replace(begin, f"/// @ref noSuchThing\n{begin}"))
        assert wrong.read_text() != text
        result = made(copy / "scripts" / "docs", folder / "more pages")
        assert result.returncode != 0, "a wrong comment was accepted"
        assert "package.h" in result.stdout, result.stdout
    print(f"{len(headers)} headers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
