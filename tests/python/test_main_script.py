# SPDX-License-Identifier: BSD-3-Clause
"""What functions of a program's main script see of it in workers, compared with concurrent.futures and loky.

Each program runs with all kinds of executors. What it prints must be the same, or DIFFERENCES has the reason.
"""

import pathlib
import subprocess
import sys

import pytest
from main_script_programs import DIFFERENCES, PROGRAMS
from peers import check_same
from programs import run_program

@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_the_same_as_with_its_peers(name: str, tmp_path: pathlib.Path) -> None:
    check_same(name, PROGRAMS[name], DIFFERENCES, tmp_path)


def test_the_top_level_of_a_script_without_a_guard_runs_once(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(
        """
import isopool
print("top level", flush=True)
state = 0
def begin(value):
    global state
    state = value
def scaled(number):
    return state * number
with isopool.Executor(2, initializer=begin, initargs=(10,)) as workers:
    print(list(workers.map(scaled, range(4))))
"""
    )
    ended = subprocess.run([sys.executable, path], text=True, capture_output=True, timeout=120)
    assert (ended.stdout, ended.stderr) == ("top level\n[0, 10, 20, 30]\n", "")


def test_executors_on_the_same_workers_have_state_of_their_own() -> None:
    ended = run_program(
        """
        import isopool

        state = None

        def begin(value):
            global state
            state = value

        def get():
            return state

        with isopool.Pool(1) as pool:
            first = isopool.Executor(pool=pool, initializer=begin, initargs=("a",))
            second = isopool.Executor(pool=pool, initializer=begin, initargs=("b",))
            print([each.submit(get).result() for each in (first, second, first, second)])
            first.shutdown()
            second.shutdown()
        """
    )
    assert ended.stdout == "['a', 'b', 'a', 'b']\n", ended.stderr


def test_globals_that_are_deleted_or_changed_in_their_parts_are_so_in_workers() -> None:
    ended = run_program(
        """
        import isopool

        max = "mine"
        prices = {"a": 1}
        get = prices.get

        def look():
            return max, get("a"), "extra" in globals() and extra

        extra = 5
        with isopool.Executor(1) as workers:
            print(workers.submit(look).result())
            del max, extra
            prices["a"] = 2
            print(workers.submit(look).result())
        """
    )
    assert ended.stdout == "('mine', 1, 5)\n(<built-in function max>, 2, False)\n", ended.stderr


def test_functions_of_a_packages_main_module_import_its_parts(tmp_path: pathlib.Path) -> None:
    package = tmp_path / "parts"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "helper.py").write_text("value = 14\n")
    (package / "__main__.py").write_text(
        "import isopool\n"
        "def late():\n"
        "    from . import helper\n"
        "    return helper.value\n"
        "with isopool.Executor(1) as workers:\n"
        "    print(workers.submit(late).result())\n"
    )
    ended = subprocess.run([sys.executable, "-m", "parts"], cwd=tmp_path, text=True, capture_output=True, timeout=120)
    assert ended.stdout == "14\n", ended.stderr


def test_a_global_that_cannot_be_sent_is_named() -> None:
    ended = run_program(
        """
        import socket
        import isopool

        open_socket = socket.socket()

        def number():
            return open_socket.fileno()

        def call():
            return number()

        with isopool.Executor(1) as workers:
            try:
                workers.submit(call).result()
            except TypeError as error:
                print(error.__notes__[0])
        """
    )
    assert ended.stdout.startswith("The global open_socket of the main script, of type socket, "), ended.stderr


def test_tracebacks_have_the_lines_of_code_that_is_in_no_file() -> None:
    ended = run_program(
        """
        import linecache
        import isopool

        source = "def divide(number):\\n    return 1 / number\\n"
        linecache.cache["<cell 1>"] = (len(source), None, source.splitlines(True), "<cell 1>")
        exec(compile(source, "<cell 1>", "exec"))
        with isopool.Executor(1) as workers:
            try:
                workers.submit(divide, 0).result()
            except ZeroDivisionError as error:
                print(error.__cause__.traceback)
        """
    )
    assert 'File "<cell 1>", line 2, in divide\n    return 1 / number' in ended.stdout, ended.stdout + ended.stderr


def test_a_class_of_a_modules_function_goes_as_it_is_at_each_call(tmp_path: pathlib.Path) -> None:
    (tmp_path / "making.py").write_text("def config():\n    class Config:\n        level = 1\n    return Config\n")
    ended = run_program(
        """
        import sys
        sys.path.insert(0, sys.argv[1])
        import isopool
        import making

        Config = making.config()

        def level():
            return Config.level

        with isopool.Executor(1) as workers:
            print(workers.submit(level).result())
            Config.level = 2
            print(workers.submit(level).result())
        """,
        tmp_path,
    )
    assert ended.stdout == "1\n2\n", ended.stderr
