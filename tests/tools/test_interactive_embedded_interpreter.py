"""interactive_embedded_interpreter runs scripts as Python does; its prompt survives its worker."""

import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import textwrap
import time
from collections.abc import Iterator

import pytest

PROGRAM = pathlib.Path(os.environ["ISOPOOL_PROGRAMS"]) / "interactive_embedded_interpreter"
PATIENCE = 60.0


def run(
    *arguments: object, stdin: str = "", folder: pathlib.Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, *map(str, arguments)],
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        timeout=PATIENCE,
    )


def script(folder: pathlib.Path, text: str) -> pathlib.Path:
    file = folder / "script.py"
    file.write_text(textwrap.dedent(text))
    return file


@pytest.mark.parametrize(
    ("ending", "code", "says"),
    [
        ("pass", 0, ""),
        ("raise SystemExit", 0, ""),
        ("raise SystemExit(7)", 7, ""),
        ("import sys; sys.exit('no more paper')", 1, "no more paper"),
        ("import os; os._exit(5)", 5, "exit code 5"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 139, "SIGSEGV"),
    ],
)
def test_the_scripts_exit_code_is_the_programs(
    tmp_path: pathlib.Path, ending: str, code: int, says: str
) -> None:
    result = run("--pyscript", script(tmp_path, f"print('begun')\n{ending}\n"))
    assert result.returncode == code, result.stderr
    assert result.stdout == "begun\n"
    assert says in result.stderr


def test_an_uncaught_exception_is_printed_as_python_prints_it(tmp_path: pathlib.Path) -> None:
    file = script(
        tmp_path,
        """
        def divide(by):
            return 1 / by
        divide(0)
        """,
    )
    result = run("--pyscript", file)
    assert result.returncode == 1
    plain = subprocess.run(["python3", file], stderr=subprocess.PIPE, text=True).stderr
    assert result.stderr.splitlines()[0] == "Traceback (most recent call last):"
    assert result.stderr.count("File ") == plain.count("File ") == 2
    assert result.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_a_script_is_main_with_its_arguments_in_the_callers_folder(tmp_path: pathlib.Path) -> None:
    (tmp_path / "beside.py").write_text("NAME = 'a module beside the script'\n")
    (tmp_path / "elsewhere").mkdir()
    file = script(
        tmp_path,
        """
        import os, pickle, sys
        import beside
        class Own: pass
        pickle.dumps(Own())
        print(__name__, sys.argv[1:], beside.NAME, os.getcwd())
        """,
    )
    result = run("--pyscript", file, "--", "--size", "3", folder=tmp_path / "elsewhere")
    assert result.returncode == 0, result.stderr
    assert result.stdout == (
        f"__main__ ['--size', '3'] a module beside the script {tmp_path / 'elsewhere'}\n"
    )


def test_threads_and_exit_functions_end_before_the_program(tmp_path: pathlib.Path) -> None:
    file = script(
        tmp_path,
        """
        import atexit, threading
        go_on = threading.Event()
        atexit.register(lambda: print("goodbye", flush=True))
        threading.Thread(target=lambda: (go_on.wait(), print("thread done"))).start()
        threading.Timer(0.2, go_on.set).start()
        """,
    )
    result = run("--pyscript", file)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["thread done", "goodbye"]


def test_folders_of_python_path_can_be_imported_from(tmp_path: pathlib.Path) -> None:
    for folder, module in (("one", "first_found"), ("two", "second_found")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{module}.py").write_text("")
    result = run(
        "--python_path", f"one:{tmp_path / 'two'}",
        stdin="import first_found, second_found; print(first_found.__file__)",
        folder=tmp_path,
    )  # fmt: skip
    assert result.stdout.strip() == str(tmp_path / "one" / "first_found.py"), result.stderr


def test_a_program_on_stdin_is_main() -> None:
    result = run(stdin="import torch\nprint(__name__, torch.ones(2).sum().item())\nexit(4)\n")
    assert result.stdout == "__main__ 2.0\n", result.stderr
    assert result.returncode == 4


def test_a_script_that_is_not_there_is_a_wrong_argument() -> None:
    result = run("--pyscript", "/no/such/script.py")
    assert result.returncode == 2
    assert "/no/such/script.py" in result.stderr


def test_help_teaches() -> None:
    text = run("--help").stdout
    for word in ("--python_path", "--pyscript", "Examples:", "Exit code:", "Ctrl-D"):
        assert word in text


class Terminal:
    """The program at its own terminal."""

    def __init__(self) -> None:
        self.process_id, self.terminal = pty.fork()
        if self.process_id == 0:
            # The supervisor would print to the same terminal, shortly before or after the prompt.
            os.execve(PROGRAM, [str(PROGRAM)], os.environ | {"ISOPOOL_LOG": "error"})
        self.shown = ""
        self.prompt()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Consumes the output up to the end of the pattern's first match."""
        end = time.monotonic() + PATIENCE
        while (match := re.search(pattern, self.shown)) is None:
            ready, _, _ = select.select([self.terminal], [], [], end - time.monotonic())
            assert ready, f"no {pattern!r} in:\n{self.shown}"
            try:
                data = os.read(self.terminal, 65536)
            except OSError:  # on Linux, when the other side is closed
                data = b""
            assert data, f"ended without {pattern!r}:\n{self.shown}"
            self.shown += data.decode()
        self.shown = self.shown[match.end() :]
        return match

    def prompt(self) -> None:
        self.worker = int(self.wait_for(r"worker process (\d+)[^>]*>>> ")[1])

    def type(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def answer(self, line: str) -> str:
        self.type(line + "\n")
        return self.wait_for(re.escape(line) + r"\r\n((?:.|\n)*?)>>> ")[1].replace("\r\n", "\n")

    def exit_code(self) -> int:
        _, status = os.waitpid(self.process_id, 0)
        self.process_id = 0
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        if self.process_id != 0:
            os.kill(self.process_id, signal.SIGKILL)
            os.waitpid(self.process_id, 0)
        os.close(self.terminal)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.close()


def test_the_prompt_keeps_names_and_takes_statements_of_many_lines(terminal: Terminal) -> None:
    assert terminal.answer("x = 20") == ""
    assert terminal.answer("x + 1") == "21\n"
    assert terminal.answer("_ * 2") == "42\n"
    assert terminal.answer("import os; os.getpid()") == f"{terminal.worker}\n"
    terminal.type("def twice(y):\n")
    terminal.wait_for(r"\.\.\. ")
    terminal.type("    return 2 * y\n")
    terminal.wait_for(r"\.\.\. ")
    terminal.type("\n")
    terminal.wait_for(">>> ")
    assert terminal.answer("twice(x)") == "40\n"
    assert terminal.answer("print('no newline', end='')") == "no newline"
    assert terminal.answer("1 / 0").endswith("ZeroDivisionError: division by zero\n")
    terminal.type("\x04")
    assert terminal.exit_code() == 0


def test_exit_at_the_prompt_gives_the_exit_code(terminal: Terminal) -> None:
    terminal.type("exit(3)\n")
    assert terminal.exit_code() == 3


def test_a_killed_worker_is_reported_and_the_prompt_goes_on_in_a_fresh_one(
    terminal: Terminal,
) -> None:
    first = terminal.worker
    assert terminal.answer("x = 1") == ""
    os.kill(first, signal.SIGKILL)
    terminal.type("x\n")
    terminal.wait_for(r"SIGKILL")
    terminal.prompt()
    assert terminal.worker != first
    assert "NameError" in terminal.answer("x")

    terminal.type("import os; os.abort()\n")
    terminal.wait_for(r"SIGABRT")
    terminal.prompt()
    assert terminal.answer("1 + 1") == "2\n"


def test_control_c_interrupts_a_statement_and_drops_a_begun_one(terminal: Terminal) -> None:
    # Short sleeps: a signal that Python receives just before a long one is not noticed until that has ended.
    terminal.answer("import time")
    terminal.type("print('asleep', flush=True); all(time.sleep(0.01) is None for _ in iter(int, 1))\n")
    terminal.wait_for(r"\r\nasleep")
    terminal.type("\x03")
    terminal.wait_for(r"KeyboardInterrupt(.|\n)*>>> ")
    terminal.type("if True:\n")
    terminal.wait_for(r"\.\.\. ")
    terminal.type("\x03")
    terminal.wait_for(r"KeyboardInterrupt\r\n>>> ")
    assert terminal.answer("1 + 1") == "2\n"


def test_reading_from_the_terminal_is_an_error_and_stops_nobody(terminal: Terminal) -> None:
    assert "can't read from the terminal" in terminal.answer("input()")
    assert terminal.answer("1 + 1") == "2\n"
