"""The Containerfile copies what the product is built from, installs what the programs link, and is used as the pages say.

    python tests/packaging/containerfile.py CMAKE ISOPOOLD ISOPOOL WORKER

Exits with 77 and prints the reason if isopool was built with another Python than Debian's. On
another system than the image's, exits so after all but the check of the linked packages.
No container engine is needed: this test checks the steps of the file, each by what it depends on.
"""

import json
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
CONTAINERFILE = ROOT / "packaging" / "Containerfile"
PAGES = (ROOT / "packaging" / "README.md", ROOT / "docs" / "operating.md")
PATIENCE = 300.0
NOT_RUN = 77
# In every image of Debian: libraries of these packages need no line.
ESSENTIAL = {"libc6", "libgcc-s1", "libstdc++6"}


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", CONTAINERFILE.read_text(), flags=re.MULTILINE)
    text = text.replace("\\\n", " ")
    lines = [line.split(None, 1) for line in text.splitlines() if line.strip()]
    return [(name, " ".join(rest.split())) for name, rest in lines]


def output(*command: str | pathlib.Path) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}: {done.stdout}"
    return done.stdout


def check_copied(steps: list[tuple[str, str]], cmake: str) -> None:
    """The copied files are there, and they are enough for the build that scripts/install makes."""
    copies = [rest.split() for name, rest in steps if name == "COPY" and "--from" not in rest]
    assert copies
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for *sources, target in copies:
            for source in sources:
                found = ROOT / source
                assert found.exists(), f"the Containerfile copies {source}, which does not exist"
                if found.is_dir():
                    assert target == source, f"{source} is copied to {target}"
                    shutil.copytree(found, folder / target)
                else:
                    shutil.copy(found, folder)
        preset = re.search(r"^build (\w+)$", (ROOT / "scripts" / "install").read_text(), re.M)[1]
        for script in ("install", "setup.sh"):
            assert (folder / "scripts" / script).exists()
        # As scripts/setup.sh configures it; nothing is compiled.
        output(cmake, "-S", folder, "--preset", preset, "-B", folder / "build",
               f"-DISOPOOL_PYTHON_EXECUTABLE={sys.executable}")  # fmt: skip
        output(cmake, "--build", folder / "build", "--", "-n")


def package_of(library: pathlib.Path) -> str:
    # Debian 12 knows some files by /lib, which is a link to /usr/lib.
    for path in (library, pathlib.Path("/") / library.relative_to("/usr")):
        command = ["dpkg-query", "--search", str(path)]
        found = subprocess.run(command, capture_output=True, text=True)
        if found.returncode == 0:
            return found.stdout.split(":")[0]
    raise AssertionError(f"no package has {library}")


def check_libraries(steps: list[tuple[str, str]], programs: list[pathlib.Path]) -> None:
    """The last stage installs the packages whose libraries the programs load."""
    last = max(index for index, (name, _) in enumerate(steps) if name == "FROM")
    runs = " ".join(rest for name, rest in steps[last:] if name == "RUN")
    words = set(shlex.split(runs))
    needed = set()
    for program in programs:
        for path in re.findall(r"=> (/\S+)", output("ldd", program)):
            real = pathlib.Path(path).resolve()
            if not real.is_relative_to("/usr/lib") and not real.is_relative_to("/lib"):
                continue  # torch's, below the virtual environment, which is copied
            needed.add(package_of(real))
    # Packages bring those along on which they depend.
    brought = set(words)
    for word in words & needed:
        depends = output("dpkg-query", "--show", "--showformat=${Depends}", word)
        brought |= set(re.findall(r"[a-z][a-z0-9.+-]+", depends))
    missing = needed - ESSENTIAL - brought
    assert not missing, f"the last stage lacks {sorted(missing)}"
    assert "python3" in words, "the virtual environment's interpreter is that of the system"


def check_user_and_socket(steps: list[tuple[str, str]], isopoold: pathlib.Path) -> None:
    user = next(rest for name, rest in steps if name == "USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user), f"USER {user} is root or not a number"
    variables = next(rest for name, rest in steps if name == "ENV" and "LISTEN" in rest)
    listen = re.search(r"ISOPOOL_LISTEN=(\S+)", variables)[1]
    assert f"ISOPOOL_SOCKET={listen}" in variables
    volume = next(rest for name, rest in steps if name == "VOLUME")
    assert pathlib.Path(listen).parent == pathlib.Path(volume)
    made = " ".join(rest for name, rest in steps if name == "RUN")
    assert f"-m 0755 {volume}" in made, "the user may not make the socket"
    # isopoold takes the variable, and the health check's command exists.
    shown = json.loads(output("env", f"ISOPOOL_LISTEN={listen}", isopoold, "--show-settings",
                              "--json"))  # fmt: skip
    assert {"listen": listen}.items() <= {each["key"]: each["value"] for each in shown}.items()
    assert ("ENTRYPOINT", '["isopoold"]') in steps


def check_pages(steps: list[tuple[str, str]], isopool: pathlib.Path) -> None:
    head = CONTAINERFILE.read_text()
    build = re.search(r"^#   (podman build .*)$", head, re.M)[1]
    runs = []
    for page in PAGES:
        text = page.read_text()
        assert build in text, f"{page} builds the image by another command"
        run = re.search(r"^podman run (?:.*\\\n)*.*$", text, re.M)
        assert run, f"{page} does not run the image"
        runs.append(" ".join(run[0].replace("\\\n", " ").split()))
    assert runs[0] == runs[1], "the pages run the image by different commands"
    volume = next(rest for name, rest in steps if name == "VOLUME")
    assert f":{volume}" in runs[0], "the socket's volume is missing"
    check = next(rest for name, rest in steps if name == "HEALTHCHECK")
    command = json.loads(check[check.index("[") :])
    assert command[0] == isopool.name
    # Understood: exit code 1, because no supervisor is there, and not 2 or that of a wrong flag.
    ran = subprocess.run([isopool, *command[1:], "--socket", "/nonexistent"], check=False,
                         capture_output=True, text=True, timeout=PATIENCE)  # fmt: skip
    assert ran.returncode == 1, ran


def main() -> int:
    cmake, *programs = sys.argv[1:]
    isopoold, isopool, worker = map(pathlib.Path, programs)
    if sys.base_prefix != "/usr":
        print(f"the image has Debian's Python, and these programs have that of {sys.base_prefix}")
        return NOT_RUN
    steps = instructions()
    assert ("RUN", "scripts/install") in steps, "the README installs by this command"
    system = platform.freedesktop_os_release()
    here = f"{system['ID']}:{system.get('VERSION_ID')}"
    image = next(rest.split()[0] for name, rest in steps if name == "FROM").rpartition("/")[2]
    if here == image:
        check_libraries(steps, [isopoold, isopool, worker])
    check_user_and_socket(steps, isopoold)
    check_pages(steps, isopool)
    check_copied(steps, cmake)
    if here != image:
        print(f"the image is {image}, and these programs link the libraries of {here}")
        return NOT_RUN
    print("the steps of the Containerfile have what they need")
    return 0


if __name__ == "__main__":
    sys.exit(main())
