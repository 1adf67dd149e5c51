# SPDX-License-Identifier: BSD-3-Clause
"""Programs that wait, cancel, fail and end with an executor, for test_drop_in.py, and their differences."""

PROGRAMS = {
    "waiting in every way": """
        import concurrent.futures as futures
        import time

        def after(seconds):
            time.sleep(seconds)
            return seconds

        main:
        with executor(2) as workers:
            begun = [workers.submit(after, each) for each in (1.2, 0.1, 0.4)]
            print([each.result() for each in futures.as_completed(begun)])
            begun = [workers.submit(after, each) for each in (0.1, 2)]
            print([len(each) for each in futures.wait(begun, return_when=futures.FIRST_COMPLETED)])
            print([len(each) for each in futures.wait(begun, timeout=0.05)])
            for wait in (lambda: begun[1].result(timeout=0.05), lambda: list(futures.as_completed(begun, timeout=0.05))):
                try:
                    wait()
                except TimeoutError as error:
                    print(type(error).__name__, error)
            print([len(each) for each in futures.wait(begun)], begun[1].done(), begun[1].running())
            print(futures.wait([]), list(futures.as_completed([])))
        """,
    "maps": """
        def square(number):
            return number * number

        def add(left, right):
            return left + right

        def fail_at_three(number):
            if number == 3:
                raise ValueError(number)
            return number

        main:
        with executor(2) as workers:
            print(list(workers.map(square, range(7))), list(workers.map(square, range(7), chunksize=3)))
            print(list(workers.map(add, [1, 2, 3], [10, 20])), list(workers.map(square, [])))
            print(list(workers.map(pow, [2, 3], [3, 2])))
            results = workers.map(fail_at_three, range(6))
            print([next(results) for _ in range(3)])
            try:
                next(results)
            except ValueError as error:
                print("raised", error.args)
            print(list(results))
            try:
                workers.map(square, [1], chunksize=0)
            except ValueError as error:
                print(error)
        """,
    "timeouts of maps": """
        import time

        def after(seconds):
            time.sleep(seconds)
            return seconds

        main:
        with executor(2) as workers:
            results = workers.map(after, [0.1, 1.5], timeout=0.8)
            print(next(results))
            try:
                next(results)
            except TimeoutError as error:
                print(type(error).__name__, error.args)
        """,
    "wrong arguments": """
        def nothing():
            return None

        main:
        for wrong in ({"max_workers": 0}, {"max_workers": -1}, {"initializer": 5}, {"max_tasks_per_child": 0}):
            try:
                executor(**wrong)
            except (TypeError, ValueError) as error:
                print(type(error).__name__, error)
        with executor(1) as workers:
            for call in (lambda: workers.submit(5).result(), lambda: workers.submit(nothing, 1).result(),
                         lambda: workers.submit(nothing, key=1).result(), lambda: list(workers.map(nothing, 5))):
                try:
                    call()
                except TypeError as error:
                    print(error)
        try:
            workers.submit(nothing)
        except RuntimeError as error:
            print(error)
        """,
    "names of keyword arguments": """
        def keywords(**kwargs):
            return kwargs

        def every(a, /, b, *rest, c=3, **kwargs):
            return a, b, rest, c, kwargs

        main:
        with executor(1) as workers:
            print(workers.submit(keywords, fn=1, self=2, args=3, kwargs=4, timeout=5).result())
            print(workers.submit(every, 1, 2, 3, c=4, d=5).result(), workers.submit(dict, a=1).result())
        """,
    "cancelled calls": """
        import concurrent.futures as futures
        import time

        def after(seconds):
            time.sleep(seconds)
            return seconds

        main:
        with executor(1) as workers:
            begun = [workers.submit(after, 0.3) for _ in range(6)]
            print(begun[5].cancel(), begun[5].cancelled(), begun[5].done(), begun[5].cancel())
            try:
                begun[5].result()
            except futures.CancelledError as error:
                print(type(error).__name__)
            print([len(each) for each in futures.wait(begun)], begun[0].cancel(), [each.cancelled() for each in begun])
        workers = executor(1)
        begun = [workers.submit(after, 0.3) for _ in range(8)]
        workers.shutdown(wait=True, cancel_futures=True)
        print(begun[0].result(), begun[7].cancelled(), all(each.done() for each in begun))
        """,
    "ends of executors": """
        import time

        def after(seconds):
            time.sleep(seconds)
            return seconds

        main:
        workers = executor(1)
        begun = workers.submit(after, 0.3)
        workers.shutdown(wait=False)
        print(begun.result())
        workers.shutdown()
        workers = executor(1)
        begun = workers.submit(after, 0.3)
        del workers
        print(begun.result())
        try:
            with executor(1) as workers:
                begun = workers.submit(after, 0.3)
                raise KeyError("in the block")
        except KeyError as error:
            print(error, begun.result())
        """,
    "callbacks": """
        def one():
            return 1

        def fail():
            raise ValueError("b")

        def raising(future):
            raise RuntimeError("of a callback")

        seen = []

        main:
        with executor(1) as workers:
            future = workers.submit(one)
            future.add_done_callback(raising)
            future.add_done_callback(lambda each: seen.append((each is future, each.done(), each.result())))
            failed = workers.submit(fail)
            failed.add_done_callback(lambda each: seen.append(repr(each.exception())))
            again = workers.submit(one)
            again.add_done_callback(lambda each: workers.submit(one))
        future.add_done_callback(lambda each: seen.append("at once"))
        print(future.result(), seen)
        """,
    "exceptions of functions": """
        class Reduced(Exception):
            def __init__(self, code, text):
                super().__init__(text)
                self.code = code

            def __reduce__(self):
                return Reduced, (self.code, str(self))

        class Derived(Reduced):
            pass

        def reduced():
            raise Reduced(3, "m")

        def derived():
            raise Derived(3, "m")

        def from_another():
            try:
                1 / 0
            except ZeroDivisionError as error:
                raise ValueError("v") from error

        def group():
            raise ExceptionGroup("g", [ValueError(1), TypeError(2)])

        def stop():
            raise StopIteration(4)

        def noted():
            error = ValueError("n")
            error.add_note("a note")
            raise error

        def of_the_system():
            open("/no/such/file")

        def of_text():
            b"\\xff".decode("utf8")

        def returned():
            return ValueError("returned")

        main:
        with executor(2) as workers:
            for function in (reduced, derived, from_another, group, stop, noted, of_the_system):
                try:
                    workers.submit(function).result()
                except Exception as error:
                    print(function.__name__, type(error), error, error.args, getattr(error, "code", None))
                    print(getattr(error, "filename", None), getattr(error, "__notes__", []), error.__cause__ is None)
            print(repr(workers.submit(returned).result()), repr(workers.submit(returned).exception()))
        """,
    "exceptions that are no Exception": """
        import sys

        class Own(BaseException):
            pass

        def leave(code):
            sys.exit(code)

        def interrupted():
            raise KeyboardInterrupt

        def own():
            raise Own("own")

        def generator():
            raise GeneratorExit("g")

        main:
        with executor(1) as workers:
            for code in (0, 3, "text", None):
                error = workers.submit(leave, code).exception(30)
                print(type(error).__name__, error.args)
            for function in (interrupted, own, generator):
                error = workers.submit(function).exception(30)
                print(type(error).__name__, error.args)
            print(workers.submit(int, 5).result())
        """,
    "an initializer that fails": """
        def begin():
            raise ValueError("no")

        main:
        import concurrent.futures.process
        import logging

        logging.getLogger("concurrent.futures").disabled = True
        with executor(1, initializer=begin) as workers:
            for _ in range(2):
                try:
                    workers.submit(int, 1).result()
                except concurrent.futures.BrokenExecutor as error:
                    print(isinstance(error, concurrent.futures.process.BrokenProcessPool))
        """,
    "what can't be pickled": """
        import pickle

        class Never:
            def __getstate__(self):
                raise RuntimeError("no state")

        class NotRead:
            def __reduce__(self):
                return refuse, ()

        def refuse():
            raise ValueError("not read")

        def make():
            return Never()

        def generator():
            return (each for each in range(3))

        main:
        import os

        with executor(1) as workers:
            for call in ((id, Never()), (make,), (generator,), (id, open(os.devnull))):
                error = workers.submit(*call).exception(30)
                print(call[0].__name__, isinstance(error, (TypeError, RuntimeError, pickle.PicklingError)))
            print(workers.submit(len, [1]).result())
        """,
    "limits of recursion": """
        def depth(number):
            return 0 if number == 0 else 1 + depth(number - 1)

        def nested(number):
            value = []
            for _ in range(number):
                value = [value]
            return value

        main:
        with executor(1) as workers:
            print(workers.submit(depth, 900).result(), type(workers.submit(depth, 5000).exception()).__name__)
            value, levels = workers.submit(nested, 100).result(), 0
            while value:
                value, levels = value[0], levels + 1
            print(levels, workers.submit(int, 5).result())
        """,
    "large values": """
        def large(number):
            return b"x" * number

        def texts(number):
            return [f"text {each}" for each in range(number)]

        main:
        with executor(2) as workers:
            print(len(workers.submit(large, 50_000_000).result()), workers.submit(len, b"z" * 20_000_000).result())
            print(len(workers.submit(texts, 200_000).result()), workers.submit(len, bytearray(5_000_000)).result())
            print(sum(map(len, workers.map(large, [100_000] * 20))))
        """,
    "arrays": """
        import numpy as np

        def change(array):
            array[0] = 5
            return array * 2, array.dtype, array.flags.writeable

        def look(array):
            return array.sum(axis=0), array.T.shape, array[::2].flags.c_contiguous, array.strides

        def kinds():
            return (
                np.zeros(2, dtype=[("a", "i4"), ("b", "U5")]), np.array(["a", None], dtype=object), np.float32(3),
                np.ma.array([1, 2], mask=[0, 1]), np.datetime64("2020-01-01"), np.arange(3)[::-1],
            )

        def same_twice(size):
            array = np.zeros(size)
            return [array, array]

        main:
        with executor(2) as workers:
            array = np.arange(6.0)
            print(workers.submit(change, array).result(), array)
            fortran = np.asfortranarray(np.arange(12.0).reshape(3, 4))
            print(workers.submit(look, fortran[:, 1:]).result(), workers.submit(kinds).result())
            for size in (10, 1_000_000):
                first, second = workers.submit(same_twice, size).result()
                first[0] = 3
                print(first is second, first.flags.writeable)
            copied = workers.submit(np.copy, np.arange(1_000_000)).result()
            copied += 1
            print(copied[:3], list(workers.map(np.square, np.arange(3))))
        """,
    "modules and tensors of torch": """
        import torch

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 2)
                self.register_buffer("offset", torch.ones(2))

            def forward(self, x):
                return self.layer(x) + self.offset

        def run(net, x):
            with torch.no_grad():
                return net(x)

        def clear(net):
            with torch.no_grad():
                net.layer.weight.zero_()
            return net

        def gradient(x):
            (x * x).sum().backward()
            return x.grad

        def kinds():
            return torch.zeros(2, dtype=torch.bfloat16), torch.Size([1, 2]), torch.device("cpu"), torch.ones(3).to_sparse()

        main:
        torch.manual_seed(0)
        net, x = Net(), torch.ones(1, 4)
        with executor(1) as workers:
            print(torch.allclose(workers.submit(run, net, x).result(), net(x)))
            cleared = workers.submit(clear, net).result()
            print(type(cleared) is Net, float(cleared.layer.weight.abs().sum()))
            leaf = torch.ones(3, requires_grad=True)
            print(workers.submit(gradient, leaf).result(), leaf.grad, workers.submit(kinds).result())
        """,
    "coroutines": """
        import asyncio
        import time

        async def later(number):
            await asyncio.sleep(0.01)
            return number + 1

        def run(number):
            return asyncio.run(later(number))

        async def work(workers):
            loop = asyncio.get_running_loop()
            print(await asyncio.gather(*(loop.run_in_executor(workers, run, each) for each in range(4))))
            try:
                await asyncio.wait_for(loop.run_in_executor(workers, time.sleep, 1), 0.1)
            except asyncio.TimeoutError:
                print("too late")
            print(await asyncio.wrap_future(workers.submit(abs, -1)))

        main:
        with executor(2) as workers:
            asyncio.run(work(workers))
        """,
    "threads that share an executor": """
        import threading

        def square(number):
            return number * number

        main:
        results = []
        with executor(2) as workers:
            def use(first):
                results.extend(workers.map(square, range(first, first + 50)))

            threads = [threading.Thread(target=use, args=(each * 100,)) for each in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        print(len(results), sum(results))
        """,
    "calls that are open at the end of the program": """
        import time

        def say(number):
            time.sleep(0.2)
            print("done", number, flush=True)

        main:
        workers = executor(1)
        for each in range(3):
            workers.submit(say, each)
        print("the script has ended", flush=True)
        """,
    "handlers at the end of the program": """
        import atexit
        import time

        def say():
            time.sleep(0.2)
            print("done", flush=True)

        main:
        atexit.register(lambda: print("handler", flush=True))
        executor(1).submit(say)
        """,
    "a subclass that sees each call": """
        def square(number):
            return number * number

        main:
        kind = type(executor(1))

        class Counting(kind):
            calls = 0

            def submit(self, *arguments, **options):
                Counting.calls += 1
                return super().submit(*arguments, **options)

        with Counting(1) as workers:
            print(list(workers.map(square, range(6), chunksize=2)), Counting.calls)
            print(list(workers.map(square, range(3))), Counting.calls)
        """,
    "processes that die": """
        import concurrent.futures.process
        import os
        import signal
        import time

        def leave(code):
            os._exit(code)

        def kill(number):
            os.kill(os.getpid(), number)
            time.sleep(60)

        main:
        for function, argument in ((leave, 0), (leave, 7), (kill, signal.SIGKILL), (kill, signal.SIGTERM)):
            with executor(1) as workers:
                try:
                    workers.submit(function, argument).result()
                except concurrent.futures.process.BrokenProcessPool:
                    print("broken", function.__name__, int(argument))
        """,
    "items that can't be pickled, and an end": """
        class Never:
            def __reduce__(self):
                raise RuntimeError("never")

        main:
        with executor(1) as workers:
            begun = [workers.submit(id, Never()) for _ in range(5)]
            print([isinstance(each.exception(60), Exception) for each in begun])
        """,
    "what a worker knows of itself": """
        import multiprocessing
        import os
        import signal
        import threading

        def look():
            process = multiprocessing.current_process()
            return (
                process.name == "MainProcess", multiprocessing.parent_process() is None,
                threading.current_thread() is threading.main_thread(), os.getpid() == multiprocessing.current_process().pid,
            )

        def read():
            try:
                return input()
            except EOFError:
                return "nothing"

        def fork_one():
            context = multiprocessing.get_context("fork")
            results = context.SimpleQueue()
            process = context.Process(target=results.put, args=(5,))
            process.start()
            process.join()
            return results.get(), process.exitcode

        def set_handler():
            before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
            signal.signal(signal.SIGALRM, before)
            return "set"

        main:
        with executor(1) as workers:
            print(workers.submit(look).result(), workers.submit(set_handler).result())
            print(workers.submit(read).result(), workers.submit(fork_one).result())
        """,
    "output of workers": """
        import sys

        def speak(number):
            print("line", number)
            sys.stdout.write("a part")
            sys.stdout.flush()
            return number

        main:
        with executor(1) as workers:
            workers.submit(speak, 1).result()
        sys.stdout.write("\\nthe end\\n")
        """,
    "a fork of the program": """
        import os

        def square(number):
            return number * number

        main:
        child = os.fork()
        if child == 0:
            with executor(1) as workers:
                print(workers.submit(square, 3).result(), flush=True)
            os._exit(0)
        print(os.waitpid(child, 0)[1], flush=True)
        with executor(1) as workers:
            print(workers.submit(square, 4).result())
        """,
    "futures as objects": """
        import concurrent.futures

        def one():
            return 1

        main:
        with executor(1) as workers:
            future = workers.submit(one)
            print(future.result(), future.exception(), future.done(), future.running(), future.cancelled())
            print(isinstance(future, concurrent.futures.Future), isinstance(workers, concurrent.futures.Executor))
            print(repr(future).partition("state=")[2], workers._max_workers)
        """,
    "functions and arguments whose pickling waits for calls": """
        import functools

        def negative(number):
            return -number

        class Later:
            def __init__(self, future):
                self.future = future

            def __getstate__(self):
                return {"value": self.future.result(60)}

            def plus(self, number):
                return self.value + number

        def add(later, number):
            return later.value + number

        main:
        with executor(2) as workers:
            def later():
                return Later(workers.submit(negative, 5))

            print(workers.submit(later().plus, 1).result(), workers.submit(add, later(), 1).result())
            print(workers.submit(functools.partial(add, later()), 1).result())
            print(list(workers.map(later().plus, range(3), timeout=60)))
        """,
    "handlers of signals that raise": """
        import signal
        import time

        class Alarm(Exception):
            pass

        def slowly(value):
            time.sleep(0.5)
            return value

        def ring(number, frame):
            raise Alarm

        main:
        signal.signal(signal.SIGALRM, ring)
        with executor(1) as workers:
            print(workers.submit(abs, -1).result())
            for wait in ("result", "exception"):
                future = workers.submit(slowly, wait)
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                try:
                    print(getattr(future, wait)())
                except Alarm:
                    print("rang", future.done(), future.result())
        """,
    "pipes and sockets as arguments": """
        import multiprocessing
        import socket

        def report(connection, steps):
            for each in range(steps):
                connection.send(each)
            connection.close()
            return steps

        def echo(end):
            with end:
                end.sendall(end.recv(10).upper())

        main:
        reader, writer = multiprocessing.Pipe(duplex=False)
        left, right = socket.socketpair()
        with executor(1) as workers:
            for count in range(3):
                print(workers.submit(report, writer, 3).result(), [reader.recv() for _ in range(3)])
            left.sendall(b"text")
            workers.submit(echo, right).result()
            print(left.recv(10), workers.submit(abs, -1).result())
        """,
}

# What a peer does, or prints, otherwise, and why.
OLDER = "it has the interface of an older concurrent.futures"

DIFFERENCES = {
    ("wrong arguments", "loky"): OLDER,
    ("names of keyword arguments", "loky"): OLDER,
    ("cancelled calls", "loky"): OLDER,
    ("what can't be pickled", "loky"): "an open file is a copy of its text",
}
