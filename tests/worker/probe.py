# SPDX-License-Identifier: BSD-3-Clause
"""A model for tests: call it with the name of a method and the arguments of the method."""

import ctypes
import os
import signal
import sys
import threading
import time

import torch


class NotForTheWorld:
    pass


class Probe(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(65536, dtype=torch.float32))
        self.other = torch.nn.Parameter(torch.ones(65536))
        self.kept: list[torch.Tensor] = []
        self.array = None

    def forward(self, name, *arguments, **named):  # type: ignore[no-untyped-def]
        return getattr(self, name)(*arguments, **named)

    # ---- values
    def identity(self, x):
        return x

    def nothing(self):
        return None

    def add_one(self, x):
        return x + 1

    def add_in_place(self, x):
        x += 1
        return None

    def sums(self, x, scale=1.0, shift=0.0):
        return float(x.sum()) * scale + shift

    def twice(self, x):
        y = x + 1
        return y, y[1:], {"same": y}

    def many(self, count):
        return [torch.full((1024,), float(i)) for i in range(count)]

    def zeros(self, count):
        return torch.zeros(count)

    def from_numpy(self, count):
        import numpy

        return torch.from_numpy(numpy.arange(count, dtype=numpy.float32))

    def from_bytes(self, count):
        """In memory of Python's own, which no library has allocated."""
        return torch.frombuffer(bytearray(torch.arange(count, dtype=torch.float32).numpy().tobytes()), dtype=torch.float32)

    def slice_of_large(self, count):
        large = torch.arange(count, dtype=torch.float32)
        self.kept.append(large)
        return large[:4]

    def mixed(self):
        return [1, "two"]

    def object_of_a_class(self):
        return NotForTheWorld()

    def text(self, length):
        return "x" * length

    def modes(self):
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    def requires_grad(self, x):
        return x.requires_grad, (x * 2)

    # ---- state
    def keep(self, x):
        self.kept.append(x)
        return None

    def keep_both(self, x, y):
        self.kept += [x, y]

    def keep_and_return(self, x):
        self.kept.append(x)
        return x

    def make_kept(self, count):
        self.kept.append(torch.zeros(count))
        return self.kept[-1]

    def make_and_hide(self, count):
        self.kept.append(torch.full((count,), 3.0))
        return None

    def make_with_numpy_view(self, count):
        y = torch.zeros(count)
        self.array = y.numpy()
        return y

    def write_array(self, value):
        self.array[:] = value

    def write_kept(self, value):
        for tensor in self.kept:
            tensor.fill_(value)

    def kept_sum(self):
        return [float(tensor.sum()) for tensor in self.kept]

    def all_kept_are(self, *values):
        """Also true if nothing is kept. Compared here: an empty list cannot become an IValue."""
        return all(
            bool((tensor == tensor[0]).all()) and float(tensor[0]) in values for tensor in self.kept
        )

    def return_kept(self, index):
        return self.kept[index]

    def forget(self):
        self.kept.clear()
        self.array = None

    def return_weight(self):
        return self.weight

    def weight_sum(self):
        return float(self.weight.detach().sum())

    def write_weight(self):
        with torch.no_grad():
            self.weight.zero_()

    # ---- this process
    def run(self, source):
        """Runs Python source and returns the value that it leaves in `result`."""
        # With Python's own import, not that of the package.
        scope = {"__builtins__": sys.modules["builtins"]}
        exec(source, scope)
        return scope.get("result")

    def draw(self):
        import random

        import numpy

        return torch.rand(1).item(), float(numpy.random.rand()), random.random()

    def threads(self):
        return len(os.listdir("/proc/self/task")), torch.get_num_threads()

    def smaps(self, path="/proc/self/smaps_rollup"):
        fields = {}
        for line in open(path):
            parts = line.split()
            if len(parts) == 3:
                fields[parts[0].rstrip(":")] = fields.get(parts[0].rstrip(":"), 0) + int(parts[1])
        return {"private": fields["Private_Clean"] + fields["Private_Dirty"], "pss": fields["Pss"]}

    def say(self, text, end="\n"):
        print(text, end=end)

    def complain(self, text):
        print(text, file=sys.stderr)

    def complain_quietly(self, text):
        sys.modules["_isopool"].append_to_crash_log(text.encode() + b"\n")

    def descriptors(self):
        return sorted(os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                      if os.path.exists(f"/proc/self/fd/{fd}"))

    def processor(self):
        return ctypes.CDLL(None).sched_getcpu()

    def group(self):
        return os.getpgrp() == os.getpid()

    # ---- trouble
    def fail(self, x):
        local = x  # noqa: F841
        raise ValueError("no such luck: \u00e9")

    def keep_and_fail(self, x):
        self.kept.append(x)
        raise RuntimeError("after keeping")

    def leave(self, code):
        sys.exit(code)

    def recurse(self):
        return self.recurse()

    def interrupt(self):
        raise KeyboardInterrupt

    def crash(self):
        ctypes.string_at(0)

    def wait_for(self, path):
        while not os.path.exists(path):
            time.sleep(0.001)

    def fork_and_ask(self):
        """Returns the exit status of a forked child: 7 if the runtime refuses to work there."""
        _isopool = sys.modules["_isopool"]
        kept = torch.ones(4096)
        pid = os.fork()
        if pid == 0:
            try:
                _isopool.epoch()
            except RuntimeError:
                del kept
                os._exit(7)
            os._exit(1)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def fork_and_return(self, path):
        pid = os.fork()
        if pid == 0:
            return "the child"
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return f"the parent saw {status}"

    @property
    def forked(self):
        return self.fork_and_return("")

    def fork_sleeper(self):
        pid = os.fork()
        if pid == 0:
            while True:
                signal.pause()
        return pid

    def start_thread(self):
        self.ticks = 0

        def tick():
            while True:
                self.ticks += 1
                time.sleep(0.0001)

        threading.Thread(target=tick, daemon=True).start()

    def tick_count(self):
        return self.ticks

    def copy_counters(self):
        return sys.modules["_isopool"].copy_counters()

    def arm(self, name, nth):
        return sys.modules["_isopool"].arm_crash_point(name, nth)
