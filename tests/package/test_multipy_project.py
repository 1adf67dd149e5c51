"""A project with multipy's CMake builds and runs with MULTIPY_PATH pointing at isopool."""

import os
import pathlib
import shutil

import pytest
from package_tree import BUILD_FOLDER, CMAKE, needed_libraries, run

PROJECT = pathlib.Path(__file__).parent / "multipy_project"


@pytest.fixture(scope="module", params=["build tree", "install tree"])
def multipy_path(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> pathlib.Path:
    prefix = BUILD_FOLDER
    if request.param == "install tree":
        prefix = tmp_path_factory.mktemp("install") / "prefix"
        run(CMAKE, "--install", BUILD_FOLDER, "--prefix", prefix)
    return prefix / "share" / "isopool" / "multipy"


@pytest.fixture
def without_library_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.delenv("LIBRARY_PATH", raising=False)


@pytest.mark.usefixtures("without_library_path")
def test_a_project_with_multipys_cmake_builds_and_runs(
    multipy_path: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    # The documents' first edition had the old ABI's flag; one of the two builds has it too.
    old_abi = "ON" if multipy_path.is_relative_to(BUILD_FOLDER) else "OFF"
    configured = run(
        CMAKE, "-S", PROJECT, "-B", tmp_path, "-G", "Ninja",
        f"-DMULTIPY_PATH={multipy_path}", f"-DOLD_ABI={old_abi}",
    )  # fmt: skip
    assert ("C++11's strings" in configured) == (old_abi == "ON")
    run(CMAKE, "--build", tmp_path)
    assert run(tmp_path / "tutorial").splitlines() == ["greetings from Python", "sum 3"]
    needed = needed_libraries(tmp_path / "tutorial")
    assert "libisopool.so" in needed
    assert "libpython" not in needed


def test_the_archive_is_enough_for_a_program_linked_by_hand(
    multipy_path: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    assert compiler
    source = tmp_path / "program.cc"
    source.write_text("int main() {}\n")
    run(
        compiler, source, "-o", tmp_path / "program", "-Wl,--no-as-needed", "-Wl,--whole-archive",
        multipy_path / "multipy" / "runtime" / "build" / "libtorch_deploy.a",
        "-Wl,--no-whole-archive", "-Wl,--allow-shlib-undefined",
    )  # fmt: skip
    assert "libisopool.so" in needed_libraries(tmp_path / "program")
