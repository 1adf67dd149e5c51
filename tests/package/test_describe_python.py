"""Interpreters that isopool is not built for are refused when it is configured, with the reason."""

import json
import pathlib
import subprocess
import sys

DESCRIBE = pathlib.Path(__file__).parents[2] / "cmake" / "describe_python.py"


def describe(change: str = "") -> subprocess.CompletedProcess[str]:
    """What CMake is told of this interpreter, after a change of what the interpreter says of itself."""
    program = f"import sys, sysconfig\n{change}\nexec(compile(sys.stdin.read(), 'describe_python.py', 'exec'))"
    return subprocess.run(
        [sys.executable, "-c", program], input=DESCRIBE.read_text(), capture_output=True, text=True, timeout=60
    )


def test_this_interpreter_is_described() -> None:
    described = describe()
    assert described.returncode == 0, described.stderr
    values = json.loads(described.stdout)
    assert values["version"] == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert pathlib.Path(values["torch_root"], "include").is_dir()


def test_a_free_threaded_one_is_refused() -> None:
    refused = describe("sysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1")
    assert refused.returncode == 1 and not refused.stdout
    assert "free-threaded" in refused.stderr and sys.executable in refused.stderr


def test_an_old_one_is_refused() -> None:
    refused = describe("sys.version_info = (3, 10, 4)")
    assert refused.returncode == 1 and not refused.stdout
    assert "3.11 or newer is needed" in refused.stderr
