# SPDX-License-Identifier: BSD-3-Clause
"""Pools that code in a worker starts: they work, and do not multiply without end."""

import pathlib

from programs import run_program


def test_a_call_may_start_a_pool_whose_call_starts_a_pool() -> None:
    source = """
        import isopool

        def nested(depth):
            if depth == 0:
                return 0
            with isopool.Executor(1) as executor:
                return 1 + executor.submit(nested, depth - 1).result()

        if __name__ == "__main__":
            print(nested(4))
        """
    ended = run_program(source, patience=120)
    assert (ended.stdout, ended.stderr) == ("4\n", "")


def test_a_module_that_starts_a_pool_when_it_is_imported_ends_with_the_reason(tmp_path: pathlib.Path) -> None:
    (tmp_path / "endless.py").write_text(
        "import os, pathlib, isopool\n"
        "def process():\n"
        "    return os.getpid()\n"
        "with open(pathlib.Path(__file__).with_name('started'), 'a') as file:\n"
        "    file.write(f'{os.getpid()}\\n')\n"
        "with isopool.Executor(1) as executor:\n"
        "    worker = executor.submit(process).result()\n"
    )
    source = """
        import sys
        sys.path.insert(0, sys.argv[1])
        import endless
        """
    ended = run_program(source, tmp_path, patience=120)
    assert "to the depth that ISOPOOL_NESTED_POOLS allows" in ended.stderr
    # The program, and a worker of each pool.
    assert len((tmp_path / "started").read_text().split()) == 6


def test_a_program_may_forbid_its_workers_to_start_pools() -> None:
    source = """
        import os
        os.environ["ISOPOOL_NESTED_POOLS"] = "1"
        import isopool

        def pool():
            with isopool.Executor(1) as executor:
                return executor.submit(abs, -1).result()

        if __name__ == "__main__":
            with isopool.Executor(1) as executor:
                try:
                    executor.submit(pool).result()
                except isopool.Error as error:
                    print(error)
        """
    assert "to the depth that ISOPOOL_NESTED_POOLS allows" in run_program(source).stdout
