# SPDX-License-Identifier: BSD-3-Clause
"""A program ends as one that uses concurrent.futures does, whatever its pools and threads do at that moment."""

import pytest
from programs import run_program


def outcome(source: str) -> tuple[int, str]:
    ended = run_program(source, patience=120)
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.parametrize("attempt", range(5))
def test_an_executor_that_ends_in_the_background(attempt: int) -> None:
    del attempt  # it was a race
    source = """
        import isopool
        print(isopool.Executor(1).submit(abs, -1).result())
        """
    assert outcome(source) == (0, "1\n")


def test_an_executor_that_is_shut_down_without_waiting() -> None:
    source = """
        import isopool
        executor = isopool.Executor(1)
        done = [executor.submit(abs, -number) for number in range(100)]
        executor.shutdown(wait=False)
        done[-1].add_done_callback(lambda future: print(future.result(), flush=True))
        """
    assert outcome(source) == (0, "99\n")


def test_calls_end_before_the_programs_own_handlers_run() -> None:
    source = """
        import atexit
        import isopool
        executor = isopool.Executor(1)
        done = [executor.submit(abs, -number) for number in range(100)]
        atexit.register(lambda: print(sum(future.done() for future in done)))
        """
    assert outcome(source) == (0, "100\n")


def test_a_thread_that_goes_on_submitting_gets_a_runtime_error() -> None:
    source = """
        import threading
        import isopool
        executor = isopool.Executor(1)
        def submit():
            try:
                while True:
                    executor.submit(abs, -1).result()
            except RuntimeError as error:
                print(error)
        threading.Thread(target=submit).start()
        """
    assert outcome(source) == (0, "cannot schedule new futures after interpreter shutdown\n")


@pytest.mark.parametrize("attempt", range(3))
def test_daemon_threads_in_calls(attempt: int) -> None:
    del attempt
    source = """
        import threading, time
        import isopool
        pool = isopool.Pool(2)
        quick, slow = pool.load(abs), pool.load(time.sleep)
        called = threading.Semaphore(0)
        def call():
            while True:
                quick(-1)
                called.release()
        for target in (call, call, lambda: slow(1000)):
            threading.Thread(target=target, daemon=True).start()
        for _ in range(100):
            called.acquire()
        print("ends")
        """
    assert outcome(source) == (0, "ends\n")


def test_a_logger_and_callbacks_that_are_called_until_the_end() -> None:
    source = """
        import logging
        import isopool
        pool = isopool.Pool(2, logger=logging.getLogger("pool").log, supervisor_log_level="debug")
        model = pool.load(abs)
        for number in range(1000):
            model.call_async((-number,), {}, lambda value, error: None)
        print("ends")
        """
    code, printed = outcome(source)
    assert (code, printed.splitlines()[0]) == (0, "ends"), printed
