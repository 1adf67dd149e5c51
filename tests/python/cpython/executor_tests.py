# SPDX-License-Identifier: BSD-3-Clause
"""CPython's own tests of executors, from the installed test package, with isopool.Executor as the executor.

A unittest module. test_cpython_executor.py runs it with a Python in which `from concurrent.futures import
IsopoolExecutor` works, as the tests' own programs need.
"""

import concurrent.futures
import importlib
import multiprocessing
import types
import unittest

# One module in Python 3.11, a package from 3.12 on.
PARTS = ("executor", "test_as_completed", "test_deadlock", "test_init", "test_shutdown", "test_wait", "util")


def tests_of_cpython() -> types.SimpleNamespace:
    tests = importlib.import_module("test.test_concurrent_futures")
    parts = [tests]
    if hasattr(tests, "__path__"):
        parts = [importlib.import_module(f"{tests.__name__}.{part}") for part in PARTS]
    return types.SimpleNamespace(**{name: value for part in parts for name, value in vars(part).items()})


cpython = tests_of_cpython()


class IsopoolMixin(cpython.ExecutorMixin):
    executor_type = concurrent.futures.IsopoolExecutor

    def get_context(self):
        return None  # mp_context is accepted and ignored

    def create_event(self):
        # From Python 3.13 on, the tests send an event to the worker. ExecutorMixin.tearDown() ends the manager.
        if self.manager is None:
            self.manager = multiprocessing.get_context("spawn").Manager()
        return self.manager.Event()


class InitializerTest(IsopoolMixin, cpython.InitializerMixin, cpython.BaseTestCase):
    pass


class FailingInitializerTest(IsopoolMixin, cpython.FailingInitializerMixin, cpython.BaseTestCase):
    pass


class ShutdownTest(IsopoolMixin, cpython.ExecutorShutdownTest, cpython.BaseTestCase):
    pass


class WaitTest(IsopoolMixin, cpython.WaitTests, cpython.BaseTestCase):
    pass


class AsCompletedTest(IsopoolMixin, cpython.AsCompletedTests, cpython.BaseTestCase):
    pass


class ExecutorTest(IsopoolMixin, cpython.ExecutorTest, cpython.BaseTestCase):
    pass


class DeadlockTest(IsopoolMixin, cpython.ExecutorDeadlockTest, cpython.BaseTestCase):
    @unittest.skip("looks into ProcessPoolExecutor: it joins _executor_manager_thread, which isopool does not have")
    def test_shutdown_deadlock_pickle(self):
        pass
