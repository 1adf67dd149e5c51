# SPDX-License-Identifier: BSD-3-Clause
"""The model of these tests: the worker tests' probe, and methods for tests of a whole pool."""

import collections
import importlib
import os
import signal
import time

import probe
import torch


class Tracked:
    alive = 0

    def __init__(self):
        Tracked.alive += 1

    def __del__(self):
        Tracked.alive -= 1


class WaitsWhenReleased:
    def __init__(self, model, arrived, gate):
        self.model, self.gate = model, (arrived, gate)

    def __del__(self):
        self.model.wait_at(*self.gate)


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class Refusing:
    """Can be pickled, not unpickled."""

    def __reduce__(self):
        return (_refuse, ())


def _refuse():
    raise LookupError("this object does not want to exist")


class SlowToLoad:
    """Unpickling writes to a log and waits at a gate. The test's module `loading` names both."""

    def __reduce__(self):
        return (_load_slowly, ())


class Loaded:
    def __call__(self):
        return os.getpid()


def _load_slowly():
    names = importlib.import_module("loading")
    subject = Subject()
    subject.log(names.log, os.getpid())
    subject.wait_at(names.arrived, names.gate)
    return Loaded()


class SlowToPickle:
    def __init__(self, model, arrived, gate):
        self.model, self.gate = model, (arrived, gate)

    def __reduce__(self):
        self.model.wait_at(*self.gate)
        return (int, ())


class Subject(probe.Probe):
    def __init__(self) -> None:
        super().__init__()
        self.leaked: list[bytes] = []
        self.small = torch.nn.Parameter(torch.arange(8, dtype=torch.float32))

    def leak(self, size):
        """Keeps memory of the process's heap. Returns how much it has kept."""
        self.leaked.append(b"x" * size)
        return sum(len(each) for each in self.leaked)

    # ---- weights
    def weight_and_part(self):
        return self.weight, self.weight[16384:]

    def small_weight(self):
        return self.small

    # ---- values
    def describe(self, x):
        return f"{type(x).__name__} {x!r}"

    def facts(self, x):
        """All properties of a tensor except its data."""
        return (
            f"{x.dtype} {list(x.shape)} {list(x.stride())} offset {x.storage_offset()} "
            f"grad {x.requires_grad} conj {x.is_conj()} neg {x.is_neg()} leaf {x.is_leaf}"
        )

    def clone(self, x):
        return x.clone()

    def resolve(self, x):
        return x.resolve_conj().resolve_neg().clone()

    def same_storage(self, x, y):
        return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()

    def fill(self, x, value):
        x.fill_(value)

    def add_twice_into(self, x, out):
        torch.add(x, 1, out=out)
        out += x

    def with_view(self, size):
        x = torch.full((size,), 2.0)
        return x, x.view(-1)

    def fill_and_raise(self, x, value):
        x.fill_(value)
        raise LookupError("it is filled")

    def fill_and_die(self, x, value, other=None):
        x.fill_(value)
        os.kill(os.getpid(), signal.SIGKILL)

    def fill_and_wait(self, x, value, arrived, gate):
        x.fill_(value)
        self.wait_at(arrived, gate)

    def fill_all(self, xs, result):
        for each in xs:
            each.fill_(7)
        return self.result_of_kind(result)

    def filling(self, x, count):
        for i in range(count):
            x.fill_(i)
            yield i

    def product_after_write(self, x, view):
        """The gradient of a product whose factor was written to through another argument."""
        w = torch.ones_like(x, requires_grad=True)
        product = (w * x).sum()
        view.fill_(9)
        product.backward()
        return w.grad

    def keep_and_view(self, x):
        self.kept_inputs = x
        return x.view(-1)

    def write_kept_input(self):
        self.kept_inputs.fill_(3)

    def first_two(self, x):
        return x[:2]

    def pair(self, x, y):
        return x, y

    def result_of_kind(self, kind):
        return {
            "empty list": [],
            "empty dict": {},
            "mixed list": [1, 2.0],
            "set": {1},
            "function": os.getpid,
            "module": self,
            "huge integer": 2**70,
            "surrogate": "\ud800",
            "sparse": torch.eye(3).to_sparse(),
            "sparse in a list": [torch.eye(3).to_sparse()],
            "meta": torch.empty(3, device="meta"),
            "generator": torch.Generator(),
        }[kind]

    def matrix(self, size):
        return torch.arange(size * size, dtype=torch.float32).reshape(size, size)

    def view_of_kept(self):
        """A view of a tensor that the model keeps."""
        return self.kept[-1][10:20]

    # ---- attributes
    @property
    def sour(self):
        raise KeyError("sour")

    def tracked(self):
        return Tracked()

    def tracked_alive(self):
        return Tracked.alive

    # ---- errors
    def unprintable(self):
        raise Unprintable

    def surrogate_error(self):
        raise ValueError("lone \ud800")

    def long_error(self):
        raise ValueError("x" * 200_000)

    def chained(self):
        try:
            raise KeyError("first")
        except KeyError as error:
            raise RuntimeError("second") from error

    def slow_to_pickle(self, arrived, gate):
        return SlowToPickle(self, arrived, gate)

    def constant(self, module, name):
        return getattr(importlib.import_module(module), name)

    # ---- this process
    def pid(self):
        return os.getpid()

    def slot(self):
        return torch.version.interp

    def environment(self, name):
        return os.environ.get(name, "")

    def die(self, number):
        os.kill(os.getpid(), number)

    def keep_and_die(self, x):
        self.kept.append(x)
        os.kill(os.getpid(), signal.SIGKILL)

    def exit_now(self, code):
        os._exit(code)

    def log(self, path, text):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{text}\n".encode())
        os.close(descriptor)
        return text

    def log_and_hang(self, path):
        self.log(path, "begin")
        while True:
            time.sleep(1)

    def wait_at(self, arrived, gate, held=None):
        """Writes its process id to `arrived`, then waits for the gate to open. Holds `held` meanwhile."""
        with open(arrived + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(arrived + ".new", arrived)
        self.wait_for(gate)
        return os.getpid()

    def meet(self, path, count):
        """Returns when `count` calls have arrived here."""
        self.log(path, os.getpid())
        end = time.monotonic() + 10
        while len(open(path).readlines()) < count:
            if time.monotonic() > end:
                raise TimeoutError("the others did not come")
            time.sleep(0.001)
        return os.getpid()

    def fail_in_slot(self, slot, path):
        self.log(path, os.getpid())
        if self.slot() == slot:
            raise ValueError(f"in slot {slot}")

    def die_in_slot(self, slot, path):
        self.log(path, os.getpid())
        if self.slot() == slot:
            os.kill(os.getpid(), signal.SIGKILL)

    # ---- state
    def __setstate__(self, state):
        super().__setstate__(state)
        self.mark_then = os.environ.get("ISOPOOL_TEST_MARK", "")

    def mark_when_unpickled(self):
        return self.mark_then

    mark = 0

    def set_mark(self, mark):
        self.mark = mark

    def get_mark(self):
        return self.mark

    def die_once(self, path):
        """Kills its worker unless that has happened before."""
        if not os.path.exists(path):
            self.log(path, os.getpid())
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()

    def stop_at_breakpoint(self, x):
        breakpoint()
        return x * 2

    # ---- generators
    def count_to(self, count):
        yield from range(count)

    def count_and_fail(self, count):
        yield from range(count)
        raise LookupError("no more")

    def count_and_die(self, count):
        yield from range(count)
        os.kill(os.getpid(), signal.SIGKILL)

    def count_and_hang(self, count):
        yield from range(count)
        while True:
            time.sleep(1)

    def noted(self, path):
        """Endless items. Writes each one to the log before it yields it."""
        count = 0
        try:
            while True:
                self.log(path, count)
                yield count
                count += 1
        finally:
            self.log(path, "finally")

    def pids(self, count):
        for _ in range(count):
            yield os.getpid()

    def wait_when_closed(self, arrived, gate):
        """Its `finally` waits until the gate opens."""
        try:
            while True:
                yield os.getpid()
        finally:
            self.wait_at(arrived, gate)

    def wait_when_released(self, arrived, gate):
        return WaitsWhenReleased(self, arrived, gate)

    def mixed_items(self):
        yield [1, "two"]

    def tensors(self, count, size):
        for i in range(count):
            yield torch.full((size,), float(i))

    def kept_tensors(self, size):
        x = torch.zeros(size)
        while True:
            yield x
            x += 1

    def shared_pairs(self, depth, kind):
        """A structure of `depth` containers, each of which holds the next one twice."""
        make = {
            "tuple": lambda part: (part, part),
            "list": lambda part: [part, part],
            "dict": lambda part: {"one": part, "other": part},
            "deque": lambda part: collections.deque([part, part]),
        }[kind]
        value = 1
        for _ in range(depth):
            value = make(value)
        return value

    def holding_itself(self):
        value = []
        value.append((value, value))
        return value

    def count_of(self, values):
        return len(values)

    def work(self, milliseconds):
        end = time.monotonic() + milliseconds / 1000
        while time.monotonic() < end:
            pass
        return os.getpid()
