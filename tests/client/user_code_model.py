# SPDX-License-Identifier: BSD-3-Clause
"""A model whose methods do what user code may do to the process in which it runs."""

import cProfile
import concurrent.futures
import ctypes
import importlib
import os
import resource
import subprocess
import sys
import threading
import time

import torch


def take_all_memory(allowed, take):
    """Takes all memory that the limit leaves, then tries to take more."""
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    former = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + allowed, former[1]))
    try:
        chunks = []
        while True:
            chunks.append(take())
    finally:
        chunks = None
        resource.setrlimit(resource.RLIMIT_AS, former)


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.relu(self.linear(x)).sum(dim=1) * 2


class UserCode(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scaled = Scaled()

    def forward(self, name, *arguments):
        return getattr(self, name)(*arguments)

    def pid(self):
        return os.getpid()

    def slot(self):
        return torch.version.interp

    # ---- compilers
    def compiled(self, x):
        """The result of a compiled module of the package, and of the same module uncompiled."""
        torch._dynamo.reset()
        with torch.no_grad():
            return torch.compile(self.scaled)(x), self.scaled(x)

    def compiled_global(self, x):
        """The same for a function that is not in a package."""
        torch._dynamo.reset()
        function = torch.nn.functional.softmax
        return torch.compile(function)(x, -1), function(x, -1)

    def compiled_graphs(self):
        """The number of graphs that inductor compiled here, and of those found in its cache."""
        counters = importlib.import_module("torch._dynamo.utils").counters["inductor"]
        return counters["fxgraph_cache_miss"], counters["fxgraph_cache_hit"]

    def compile_in_processes(self):
        """Starts inductor's pool of processes. A result of one of them, and their parent."""
        compiler = importlib.import_module("torch._inductor.async_compile")
        pool = compiler.AsyncCompile.process_pool()
        return pool.submit(abs, -3).result(timeout=100), pool.process.pid

    def cache_folder(self):
        return importlib.import_module("torch._inductor.runtime.cache_dir_utils").cache_dir()

    def scripted(self, x):
        return torch.jit.script(torch.nn.Linear(8, 8))(x).shape

    # ---- operators
    def custom_operator(self, x):
        """Registers an operator, once in each process, and calls it."""
        if not hasattr(torch.ops.isopool_user_code, "twice_and"):
            library = torch.library.Library("isopool_user_code", "DEF")
            library.define("twice_and(Tensor x, int more) -> Tensor")
            library.impl("twice_and", lambda x, more: x * 2 + more, "CPU")
            self.library = library
        return torch.ops.isopool_user_code.twice_and(x, 3)

    def custom_op_by_decorator(self, x):
        def negated(x: torch.Tensor) -> torch.Tensor:
            return -x

        name = f"isopool_user_code::negated_{time.monotonic_ns()}"
        return torch.library.custom_op(name, mutates_args=())(negated)(x)

    # ---- modules
    def can_import(self, name):
        """Empty, or the reason why the module can't be imported."""
        try:
            importlib.import_module(name)
        except ImportError as error:
            return str(error)
        return ""

    def gloo_alone(self, folder):
        """torch.distributed in a world of one."""
        distributed = importlib.import_module("torch.distributed")
        distributed.init_process_group(
            "gloo", init_method=f"file://{folder}/store-{os.getpid()}", rank=0, world_size=1
        )
        x = torch.ones(3)
        distributed.all_reduce(x)
        distributed.destroy_process_group()
        return x

    def picture(self):
        image = importlib.import_module("PIL.Image").new("RGB", (4, 2), (255, 0, 7))
        return image.size, image.getpixel((0, 0))

    # ---- threads and processes
    def set_threads(self, count):
        torch.set_num_threads(count)
        return torch.get_num_threads()

    def parallel_work(self, size):
        """Operations that use all of torch's threads: a product, a sum, an element-wise one."""
        x = torch.arange(size * size, dtype=torch.float64).reshape(size, size) / size**2
        product = x @ x
        threads = len(os.listdir("/proc/self/task"))
        return float(product.sum()), float((x.exp() + x).sum()), threads

    def pool_of_threads(self, count):
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            return sum(pool.map(lambda n: int(torch.full((1000,), n).sum()), range(count)))

    def thread_error(self):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            return pool.submit(lambda: 1 / 0).result()

    def silent_thread(self):
        """A thread whose exception is ignored."""
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
        return "went on"

    def leave_traced(self, how):
        if how == "settrace":
            sys.settrace(lambda *_: None)
        elif how == "setprofile":
            sys.setprofile(lambda *_: None)
        else:
            self.profile = cProfile.Profile()
            self.profile.enable()
        return how

    def sum_of_range(self, count):
        return sum(number for number in range(count))

    def end_traces(self):
        sys.settrace(None)
        sys.setprofile(None)

    def run_program(self):
        done = subprocess.run(
            [sys.executable, "-c", "import sys; print(6 * 7); sys.exit(5)"],
            capture_output=True,
            text=True,
        )
        return done.stdout.strip(), done.returncode

    def start_sleeper(self, own_session):
        """A child that would outlive this process by far."""
        return subprocess.Popen(["sleep", "1000"], start_new_session=own_session).pid

    def start_sleeping_thread(self):
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
        return os.getpid()

    def processes(self, method):
        """A pool of processes. As usual, they import from a module the function that they run."""
        multiprocessing = importlib.import_module("multiprocessing")
        with multiprocessing.get_context(method).Pool(2) as pool:
            return sorted(pool.map(abs, [-3, -1, -2]))

    def executor_of_processes(self):
        context = importlib.import_module("multiprocessing").get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
            return pool.submit(abs, -4).result()

    # ---- ways to end
    def leave(self, code):
        sys.exit(code)

    def leave_in_words(self):
        raise SystemExit("no reason")

    def exit_now(self, code):
        os._exit(code)

    def abort(self):
        os.abort()

    def crash(self):
        ctypes.memset(8, 0, 8)

    def crash_in_thread(self):
        thread = threading.Thread(target=self.crash)
        thread.start()
        thread.join()

    def recurse(self):
        return self.recurse()

    def recurse_in_c(self):
        """The stack of the process overflows in native code, which no recursion limit of Python's covers:
        libc's parser of regular expressions calls itself for each parenthesis."""
        compiled = ctypes.create_string_buffer(4096)
        return ctypes.CDLL(None).regcomp(compiled, b"(" * 10**6, 1)

    def divide_by_zero_in_c(self):
        return torch.tensor([1]) // torch.tensor([0])

    def too_large_a_tensor(self):
        return torch.empty(2**60)

    def too_large_bytes(self):
        return bytearray(2**62)

    def run_away(self, allowed):
        take_all_memory(allowed, lambda: bytearray(2**20))

    def run_away_in_torch(self, allowed):
        take_all_memory(allowed, lambda: torch.ones(2**18))

    def raise_in_many_words(self, length):
        raise ValueError("\u00fc" * length)

    def raise_group(self):
        raise ExceptionGroup("several", [ValueError("one \U0001f600"), KeyError("two")])

    def raise_no_text(self):
        raise ValueError

    def raise_class_of_its_own(self):
        class Odd(Exception):
            __qualname__ = "Odd\u00e9"

            def __repr__(self):
                raise RuntimeError

        raise Odd("odd")

    def raise_generator_exit(self):
        raise GeneratorExit
