"""A user's program finds isopool with find_package, links it, and runs it: from the build tree, and
from an install tree that is independent of the build tree."""

import pathlib
import sys

import pytest
from package_tree import BUILD_FOLDER, CMAKE, needed_libraries, run

CONSUMER = pathlib.Path(__file__).parent / "consumer"


@pytest.fixture(params=["build tree", "install tree"])
def package_folder(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> pathlib.Path:
    if request.param == "build tree":
        return BUILD_FOLDER
    prefix = tmp_path / "prefix"
    run(CMAKE, "--install", BUILD_FOLDER, "--prefix", prefix)
    installed = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file()}
    assert {
        "bin/isopool",
        "bin/isopoold",
        "lib/libisopool.so",
        "libexec/isopool/isopoold",
        "libexec/isopool/isopool-describe-model",
        "libexec/isopool/isopool-worker",
        "lib/systemd/system/isopoold.service",
        "lib/systemd/system/isopoold.socket",
        "lib/sysusers.d/isopool.conf",
        "share/isopool/isopool.toml",
        "include/isopool/isopool.h",
        "include/isopool-compat/multipy/runtime/deploy.h",
        "include/isopool-compat/torch/deploy.h",
    } <= installed
    return prefix / "lib" / "cmake" / "isopool"


def test_a_program_builds_against_the_package_and_runs(
    package_folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    build = tmp_path / "build"
    run(CMAKE, "-S", CONSUMER, "-B", build, "-G", "Ninja", f"-Disopool_DIR={package_folder}")
    run(CMAKE, "--build", build)
    for name in ("isopool_consumer", "compat_consumer"):
        run(build / name)
        assert "libisopool.so" in needed_libraries(build / name)
        assert "libpython" not in needed_libraries(build / name)


def test_tools_and_python_packages_work_from_an_install_tree(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(CMAKE, "--install", BUILD_FOLDER, "--prefix", tmp_path)
    assert "max_threads" in run(tmp_path / "bin" / "deploy_benchmark", "--help")
    script = tmp_path / "script.py"
    script.write_text("import torch; print(torch.ones(2).sum().item())\n")
    interpreter = tmp_path / "bin" / "interactive_embedded_interpreter"
    assert run(interpreter, "--pyscript", script) == "2.0\n"

    (site_packages,) = tmp_path.glob("lib/python3.*/site-packages")
    monkeypatch.setenv("PYTHONPATH", str(site_packages))
    program = (
        "import isopool, multipy.runtime\n"
        "pool = multipy.runtime.InterpreterManager(1)\n"
        "print(isopool.__file__, pool[0].global_('math', 'sqrt')(81.0).deref())"
    )
    said = run(sys.executable, "-c", program).split()
    assert said == [str(site_packages / "isopool" / "__init__.py"), "9.0"]


def test_the_installed_commands_find_their_programs(tmp_path: pathlib.Path) -> None:
    run(CMAKE, "--install", BUILD_FOLDER, "--prefix", tmp_path)
    settings = run(tmp_path / "bin" / "isopoold", "--show-settings")
    assert str(tmp_path / "libexec" / "isopool" / "isopool-worker") in settings
    assert "isopool" in run(tmp_path / "bin" / "isopool", "--version")


def test_the_library_needs_torch_and_no_python() -> None:
    needed = needed_libraries(BUILD_FOLDER / "lib" / "libisopool.so")
    assert "libtorch_cpu.so" in needed
    assert "libpython" not in needed
    assert "libtorch_python" not in needed


def test_another_torch_than_the_one_it_was_built_with_is_refused(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "torch" / "share" / "cmake" / "Torch"
    config.mkdir(parents=True)
    (config / "TorchConfigVersion.cmake").write_text('set(PACKAGE_VERSION "2.99.0")\n')
    with pytest.raises(AssertionError, match=r"built with torch .*\s.*2\.99\.0"):
        run(
            CMAKE, "-S", CONSUMER, "-B", tmp_path / "build", "-G", "Ninja",
            f"-Disopool_DIR={BUILD_FOLDER}", f"-DISOPOOL_TORCH_ROOT={tmp_path / 'torch'}",
        )  # fmt: skip
