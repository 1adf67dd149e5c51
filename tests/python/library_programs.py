# SPDX-License-Identifier: BSD-3-Clause
"""Programs that send values of libraries, and use libraries in calls, for test_library_programs.py."""

PROGRAMS = {
    "state of what is called": """
        import functools

        class Job:
            def __init__(self):
                self.seen = []

            def run(self, number):
                self.seen.append(number)
                return list(self.seen)

            def __call__(self, number):
                return self.run(number)

        def extended(values, number):
            values.append(number)
            return list(values)

        def scaled(array, by):
            array *= by
            return array.tolist()

        main:
        import numpy

        job = Job()
        with executor(1) as workers:
            print([workers.submit(Job().run, number).result() for number in range(3)])
            print([workers.submit(job.run, number).result() for number in range(3)], job.seen)
            print([workers.submit(job, number).result() for number in range(3)])
            print(list(workers.map(functools.partial(extended, [0]), range(3))))
            print(list(workers.map(functools.partial(scaled, numpy.ones(2)), [2, 3])))
            print([workers.submit([5, 6].pop).result() for _ in range(2)])
            print(list(workers.map(job.run, range(4), chunksize=2)))
            print([workers.submit(functools.partial(pow, 2), number).result() for number in range(3)])
            for wrong in (None, 5):
                print(workers.submit(wrong).exception())
        """,
    "values of the standard library": """
        import array, collections, datetime, decimal, fractions, ipaddress, pathlib, re, types, uuid, zoneinfo

        def same(value):
            return value

        VALUES = [
            10**400, -0.0, float("inf"), 1 + 2j, bytearray(b"a"), range(2, 9, 3), frozenset({1}), Ellipsis, NotImplemented,
            collections.deque([1, 2], maxlen=5), collections.OrderedDict(b=1, a=2), collections.Counter("abca"),
            collections.ChainMap({"a": 1}, {"b": 2}), array.array("d", [1.5]), uuid.UUID(int=5),
            ipaddress.ip_network("10.0.0.0/8"), fractions.Fraction(1, 3), decimal.Decimal("1.10"), pathlib.PurePosixPath("a/b"),
            re.compile("a+", re.I), types.SimpleNamespace(a=1), datetime.timedelta(days=-1), datetime.timezone.utc,
            datetime.datetime(2026, 3, 29, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"), fold=1), "a\\ud800", "\\0",
        ]

        main:
        with executor(1) as workers:
            for value in VALUES:
                found = workers.submit(same, value).result()
                print(type(found).__name__, ascii(found), found == value or found is value)
            counts = collections.defaultdict(list, a=[1])
            found = workers.submit(same, counts).result()
            print(found, found["new"], found.default_factory)
        """,
    "values that share parts": """
        def same(*values):
            return values

        main:
        shared = [1]
        ring = []
        ring.append(ring)
        deep = []
        for _ in range(300):
            deep = [deep]
        with executor(1) as workers:
            one, two = workers.submit(same, [shared, shared], {"a": shared}).result()
            print(one[0] is one[1], two["a"] is one[0], one[0] is shared)
            (found,) = workers.submit(same, ring).result()
            print(found[0] is found)
            (found,) = workers.submit(same, deep).result()
            print(str(found) == str(deep))
        """,
    "tables of pandas": """
        import pandas

        def describe(table):
            table["c"] = table.a * 2
            return table.groupby("b", observed=True).sum(), table.dtypes.astype(str).to_dict()

        def column(table):
            return table.b

        main:
        table = pandas.DataFrame({"a": [1, 2, 3], "b": pandas.Categorical(["x", "y", "x"])})
        table.index = pandas.date_range("2026-01-01", periods=3, tz="UTC")
        with executor(1) as workers:
            sums, types = workers.submit(describe, table).result()
            print(sums.to_dict(), types, list(table.columns))
            found = workers.submit(column, table).result()
            print(found.cat.categories.tolist(), found.index.equals(table.index), str(found.index.tz))
            print(workers.submit(pandas.DataFrame, {"a": [None, 1]}).result().to_json())
            print(workers.submit(pandas.Timestamp, "2026-01-01T00:00:00.000000001").result().nanosecond)
        """,
    "arrays of every kind": """
        import numpy

        def describe(array):
            return str(array.dtype), array.shape, array.tolist(), array.flags.writeable, array.flags.owndata

        def same(array):
            return array

        main:
        arrays = [
            numpy.arange(6).reshape(2, 3).T, numpy.arange(10)[::-2], numpy.zeros((0, 3)), numpy.array(5), numpy.array("text"),
            numpy.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
            numpy.array(["2026-01-01"], "M8[D]"), numpy.array([1, "a", None], dtype=object), numpy.array([True]),
            numpy.ma.masked_array([1, 2], [True, False]), numpy.array([1j]), numpy.asfortranarray(numpy.ones((2, 2))),
            numpy.broadcast_to(numpy.array([1]), (2, 2)), numpy.float16([1.5]), numpy.array([b"ab"]),
        ]
        with executor(1) as workers:
            for array in arrays:
                found = workers.submit(same, array).result()
                print(type(found).__name__, found.dtype, found.shape, found.tolist())
                print(workers.submit(describe, array).result()[:3])
            print([type(workers.submit(same, each).result()).__name__ for each in (numpy.float32(1), numpy.int64(2))])
            generator = numpy.random.default_rng(5)
            found = workers.submit(same, generator).result()
            print(found.random() == generator.random())
        """,
    "tensors of every kind": """
        import torch

        def describe(tensor):
            return str(tensor.dtype), tuple(tensor.shape), tensor.stride(), tensor.requires_grad, tensor.is_sparse

        def same(tensor):
            return tensor

        main:
        tensors = [
            torch.arange(6).reshape(2, 3).T, torch.zeros(0), torch.tensor(5), torch.ones(2, dtype=torch.bfloat16),
            torch.tensor([True]), torch.tensor([1j]), torch.eye(2).to_sparse(), torch.ones(3)[::2],
        ]
        with executor(1) as workers:
            for tensor in tensors:
                found = workers.submit(same, tensor).result()
                print(describe(found)[:2], found.to_dense().tolist(), workers.submit(describe, tensor).result()[:2])
            state = workers.submit(torch.nn.Linear(2, 1).state_dict).result()
            print(list(state), [tuple(each.shape) for each in state.values()])
        """,
    "processes that a call starts": """
        import os
        import subprocess
        import sys

        def run(code, **options):
            ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, **options)
            return ended.returncode, ended.stdout, ended.stderr[-20:]

        def piped():
            first = subprocess.Popen(["printf", "b\\\\na\\\\n"], stdout=subprocess.PIPE)
            return subprocess.check_output(["sort"], stdin=first.stdout), first.wait()

        def forked():
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                os.write(writing, b"from the child")
                os._exit(3)
            os.close(writing)
            text = os.read(reading, 100)
            os.close(reading)
            return text, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

        main:
        with executor(1) as workers:
            print(workers.submit(run, "print(1 + 1)").result())
            print(workers.submit(run, "import sys; sys.exit('bye')").result())
            print(workers.submit(run, "import os; print(os.environ['WORD'])", env={"WORD": "given"}).result())
            print(workers.submit(piped).result(), workers.submit(forked).result(), workers.submit(forked).result())
        """,
    "threads in a call": """
        import concurrent.futures
        import queue
        import threading

        def in_threads(numbers):
            with concurrent.futures.ThreadPoolExecutor(3) as threads:
                return list(threads.map(lambda number: number * 2, numbers)), threading.current_thread() is threading.main_thread()

        def produced(count):
            items = queue.Queue()
            thread = threading.Thread(target=lambda: [items.put(each) for each in range(count)])
            thread.start()
            found = [items.get(timeout=5) for _ in range(count)]
            thread.join()
            return found

        def failing():
            with concurrent.futures.ThreadPoolExecutor(1) as threads:
                return threads.submit(int, "no number").result()

        main:
        with executor(1) as workers:
            print(workers.submit(in_threads, [1, 2, 3]).result(), workers.submit(produced, 4).result())
            try:
                workers.submit(failing).result()
            except ValueError as error:
                print(error)
        """,
    "coroutines in a call": """
        import asyncio

        async def later(value):
            await asyncio.sleep(0.01)
            if value == 3:
                raise KeyError(value)
            return value

        def all_of(values):
            async def gather():
                return await asyncio.gather(*map(later, values), return_exceptions=True)

            return asyncio.run(gather())

        def limited():
            return asyncio.run(asyncio.wait_for(asyncio.sleep(60), 0.01))

        main:
        with executor(1) as workers:
            print(workers.submit(all_of, [1, 2, 3]).result(), workers.submit(all_of, []).result())
            try:
                workers.submit(limited).result()
            except TimeoutError as error:
                print("TimeoutError", error)
        """,
    "files in a call": """
        import csv, gzip, io, json, os, pathlib, sqlite3, tempfile, zipfile

        def written(path, text):
            pathlib.Path(path).write_text(text)
            return os.getcwd() == str(pathlib.Path(path).resolve().parent)

        def formats(rows):
            text = io.StringIO()
            csv.writer(text).writerows(rows)
            packed = gzip.compress(text.getvalue().encode())
            return len(packed) > 0, json.loads(json.dumps(rows)), gzip.decompress(packed)

        def database():
            with sqlite3.connect(":memory:") as connection:
                connection.execute("CREATE TABLE t(a)")
                connection.executemany("INSERT INTO t VALUES(?)", [(each,) for each in range(5)])
                return connection.execute("SELECT sum(a) FROM t").fetchall()

        def temporary():
            with tempfile.TemporaryDirectory() as folder:
                with zipfile.ZipFile(os.path.join(folder, "a.zip"), "w") as archive:
                    archive.writestr("a.txt", "text")
                return sorted(os.listdir(folder)), os.path.exists(folder)

        main:
        with executor(1) as workers:
            print(workers.submit(written, "made.txt", "text").result(), open("made.txt").read())
            print(workers.submit(formats, [[1, "a,b"], [2, None]]).result(), workers.submit(database).result())
            print(workers.submit(temporary).result())
        """,
    "alarms in a call": """
        import signal
        import time

        def limited(seconds, limit):
            def late(number, frame):
                raise TimeoutError(f"after {limit} s")

            former = signal.signal(signal.SIGALRM, late)
            signal.setitimer(signal.ITIMER_REAL, limit)
            try:
                time.sleep(seconds)
                return "in time"
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, former)

        main:
        with executor(1) as workers:
            print(workers.submit(limited, 0.01, 5).result())
            for _ in range(2):
                try:
                    workers.submit(limited, 5, 0.05).result()
                except TimeoutError as error:
                    print(error)
        """,
    "decorated functions": """
        import contextlib
        import functools

        def twice(function):
            @functools.wraps(function)
            def call(*arguments, **options):
                return function(*arguments, **options) * 2

            return call

        @twice
        @twice
        def increased(number, by=1):
            "Adds."
            return number + by

        @contextlib.contextmanager
        def around(log):
            log.append("begin")
            yield log
            log.append("end")

        def logged():
            with around([]) as log:
                log.append("within")
            return log

        class Counter:
            made = 0

            @functools.cached_property
            def value(self):
                Counter.made += 1
                return Counter.made

        def cached():
            counter = Counter()
            return counter.value, counter.value

        main:
        with executor(1) as workers:
            print(workers.submit(increased, 1).result(), workers.submit(increased, 1, by=3).result())
            print(workers.submit(logged).result(), workers.submit(cached).result(), increased.__doc__)
        """,
    "functions of functions": """
        import functools
        import operator

        def add(a, b, c=0):
            return a + b + c

        main:
        with executor(1) as workers:
            nested = functools.partial(functools.partial(add, 1), c=5)
            print(workers.submit(nested, 2).result(), workers.submit(operator.itemgetter(1, 0), "ab").result())
            print(workers.submit(operator.methodcaller("split", ","), "a,b").result())
            print(workers.submit(operator.attrgetter("real"), 5).result(), workers.submit("{}-{}".format, 1, 2).result())
            print(list(workers.map(str.upper, ["a", "b"])), list(workers.map(",".join, [["a", "b"], []])))
            print(workers.submit([3, 1, 2].index, 2).result(), workers.submit(int, "ff", 16).result())
            print(workers.submit(functools.reduce, operator.mul, [1, 2, 3, 4]).result(), workers.submit(print).result())
        """,
    "classes with their own pickling": """
        class Reduced:
            def __init__(self, value):
                self.value = value
                self.log = ["made"]

            def __reduce__(self):
                return Reduced, (self.value + 1,), {"log": self.log + ["moved"]}

        class State:
            def __init__(self, a):
                self.a, self.cache = a, object

            def __getstate__(self):
                return {"a": self.a}

            def __setstate__(self, state):
                self.__dict__.update(state, cache="anew")

        class Arguments:
            def __new__(cls, *, key):
                self = super().__new__(cls)
                self.key = key
                return self

            def __getnewargs_ex__(self):
                return (), {"key": self.key}

        class Broken:
            def __setstate__(self, state):
                raise ValueError("state")

            def __getstate__(self):
                return {"a": 1}

        def look(thing):
            return sorted(vars(thing).items(), key=str)

        def same(thing):
            return thing

        main:
        with executor(1) as workers:
            print(workers.submit(look, Reduced(1)).result(), vars(workers.submit(same, Reduced(1)).result()))
            print(workers.submit(look, State(5)).result(), vars(workers.submit(same, State(5)).result()))
            print(workers.submit(look, Arguments(key=2)).result())
        """,
    "classes of every feature": """
        import abc, dataclasses, enum, typing

        class Shape(abc.ABC):
            @abc.abstractmethod
            def area(self): ...

        @dataclasses.dataclass(frozen=True, order=True, slots=True, kw_only=True)
        class Square(Shape):
            side: float
            tags: list = dataclasses.field(default_factory=list, compare=False)

            def area(self):
                return self.side**2

        class Point(typing.NamedTuple):
            x: int
            y: int = 2

        class Mode(enum.Flag):
            READ = enum.auto()
            WRITE = enum.auto()

        class Level(enum.IntEnum):
            LOW = 1

        class Word(str):
            def __new__(cls, text, note=""):
                self = super().__new__(cls, text)
                self.note = note
                return self

        Item = typing.TypeVar("Item")

        class Box(typing.Generic[Item]):
            def __init__(self, item: Item):
                self.item = item

            def __eq__(self, other):
                return self.item == other.item

        def same(value):
            return value

        def area(shape):
            return shape.area()

        main:
        with executor(1) as workers:
            for value in (Square(side=2.0, tags=["a"]), Point(1), Mode.READ | Mode.WRITE, Level.LOW, Box[int](5)):
                found = workers.submit(same, value).result()
                print(type(found) is type(value), found == value, repr(found)[:40].split(" object")[0])
            found = workers.submit(same, Word("text", "note")).result()
            print(found, found.note, workers.submit(area, Square(side=3.0)).result(), workers.submit(Point, 5).result())
            print(workers.submit(same, Mode.READ).result() is Mode.READ, workers.submit(max, Square(side=1.0), Square(side=2.0)).result())
        """,
    "exceptions with all that they have": """
        import traceback

        class Own(Exception):
            def __init__(self, code, text="text"):
                super().__init__(code, text)
                self.code = code

        def raised(kind):
            if kind == "own":
                raise Own(5)
            if kind == "cause":
                try:
                    {}["key"]
                except KeyError as error:
                    raise ValueError("outer") from error
            if kind == "group":
                raise ExceptionGroup("several", [ValueError(1), TypeError("a")])
            if kind == "note":
                error = OSError(2, "text", "file")
                error.add_note("a note")
                raise error
            if kind == "state":
                error = RuntimeError("a")
                error.extra = [1, 2]
                raise error
            if kind == "unicode":
                b"\\xff".decode()
            raise StopIteration(7)

        main:
        with executor(1) as workers:
            for kind in ("own", "cause", "group", "note", "state", "unicode", "stop"):
                error = workers.submit(raised, kind).exception()
                print(kind, type(error).__name__, error.args, getattr(error, "code", None), getattr(error, "extra", None))
                print(getattr(error, "exceptions", None), getattr(error, "filename", None), getattr(error, "__notes__", [])[:1])
                print("in raised" in "".join(traceback.format_exception(error)))
        """,
    "warnings in a call": """
        import warnings

        def warned():
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                warnings.warn("text", DeprecationWarning)
                warnings.warn("more", UserWarning)
            return [(each.category.__name__, str(each.message)) for each in found]

        def as_errors():
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.warn("text")

        main:
        with executor(1) as workers:
            print(workers.submit(warned).result(), type(workers.submit(as_errors).exception()).__name__)
        """,
    "maps of every size": """
        import itertools
        import os

        def square(number):
            return number * number

        def pair(a, b, c):
            return a, b, c

        main:
        with executor(2) as workers:
            for size, chunk in itertools.product((0, 1, 2, 99), (1, 2, 50, 1000)):
                assert list(workers.map(square, range(size), chunksize=chunk)) == [each**2 for each in range(size)]
            print(list(workers.map(pair, "ab", itertools.count(), [None, 1, 2])))
            results = workers.map(square, itertools.chain([1, 2], range(3, 6)))
            print(next(results), next(results), type(results).__name__)
            del results
            print(sum(workers.map(square, iter(range(1000)), chunksize=7)), list(workers.map(len, ["", "a"], [])))
            print(dict(workers.map(divmod, [7, 8], [2, 3])))
        """,
    "initializers": """
        import os
        import pathlib

        seen = []

        def begin(folder, word="none"):
            seen.append(word)
            (pathlib.Path(folder) / f"worker-{os.getpid()}").write_text(word)

        def words(_):
            return list(seen)

        main:
        with executor(2, initializer=begin, initargs=(".", "given")) as workers:
            print(set(map(tuple, workers.map(words, range(20)))))
        made = list(pathlib.Path(".").glob("worker-*"))
        print(1 <= len(made) <= 2, {each.read_text() for each in made}, seen)
        for each in made:
            each.unlink()
        with executor(1, initializer=begin, initargs=(".",)) as workers:
            print(workers.submit(words, 0).result())
        for each in pathlib.Path(".").glob("worker-*"):
            each.unlink()
        """,
    "the environment of workers": """
        import os

        def variable(name):
            return os.environ.get(name)

        def change(name, value):
            os.environ[name] = value
            return os.environ[name]

        main:
        os.environ["OF_THE_PROGRAM"] = "before"
        with executor(1) as workers:
            print(workers.submit(variable, "OF_THE_PROGRAM").result(), workers.submit(change, "OF_A_CALL", "1").result())
            print(workers.submit(variable, "OF_A_CALL").result(), variable("OF_A_CALL"))
            os.environ["OF_THE_PROGRAM"] = "after"
            print(workers.submit(variable, "OF_THE_PROGRAM").result())
        """,
    "random numbers": """
        import random

        import numpy

        def seeded(seed):
            random.seed(seed)
            numpy.random.seed(seed)
            return random.random(), float(numpy.random.random())

        def numbers(count):
            return [random.random() for _ in range(count)]

        main:
        with executor(1) as workers:
            print(workers.submit(seeded, 5).result() == seeded(5), workers.submit(seeded, 6).result())
            first, second = workers.submit(numbers, 3).result(), workers.submit(numbers, 3).result()
            print(first != second, first == numbers(3))
        """,
    "large values in both directions": """
        import numpy

        def turned(value):
            return value[::-1]

        def size(value):
            return len(value)

        main:
        with executor(2) as workers:
            for value in (b"ab" * 3_000_000, "aé" * 1_000_000, list(range(200_000)), numpy.arange(1_000_000)):
                found = workers.submit(turned, value).result()
                print(type(found).__name__, len(found), found[0] == value[-1], workers.submit(size, value).result())
            table = {str(number): [number] * 3 for number in range(50_000)}
            print(workers.submit(dict, table).result() == table)
        """,
    "several executors at once": """
        import concurrent.futures as futures
        import os

        def pid(_):
            return os.getpid()

        def add(a, b):
            return a + b

        main:
        with executor(1) as one, executor(2) as two:
            print(set(one.map(pid, range(9))).isdisjoint(two.map(pid, range(9))), os.getpid() in set(one.map(pid, range(3))))
            begun = [each.submit(add, number, 1) for number, each in enumerate((one, two, one, two))]
            print([each.result() for each in begun], len(list(futures.as_completed(begun))))
            one.shutdown()
            try:
                one.submit(pid, 0)
            except RuntimeError as error:
                print(error)
            print(two.submit(add, 1, 2).result())
        """,
    "calls that begin others when they end": """
        import threading

        def square(number):
            return number * number

        main:
        found = []
        over = threading.Event()
        with executor(1) as workers:
            def more(future):
                found.append(future.result())
                if future.result() < 1000:
                    workers.submit(square, future.result()).add_done_callback(more)
                else:
                    over.set()

            workers.submit(square, 2).add_done_callback(more)
            print(over.wait(30), found)
        """,
    "numbers and texts as results of libraries": """
        import decimal, math, statistics, string, textwrap, unicodedata, difflib, heapq, bisect, hashlib, base64

        CALLS = [
            (math.factorial, 30), (math.isclose, 0.1 + 0.2, 0.3), (statistics.quantiles, [1, 2, 3, 4]), (textwrap.fill, "a b " * 9, 10),
            (unicodedata.normalize, "NFD", "é"), (heapq.nsmallest, 2, [3, 1, 2]), (bisect.bisect, [1, 3], 2), (divmod, -7, 2),
            (decimal.Decimal("1").scaleb, 3), (base64.b64encode, b"abc"), (sorted, {"b": 1, "a": 2}), (round, 2.675, 2),
            (str.translate, "abc", {97: "x"}), (list, zip("ab", range(2))), (string.Template("$a").substitute, {"a": 1}),
        ]

        def digest(data):
            return hashlib.sha256(data).hexdigest()

        main:
        with executor(1) as workers:
            for function, *arguments in CALLS:
                print(ascii(workers.submit(function, *arguments).result()))
            print(workers.submit(digest, b"abc").result()[:8], workers.submit(difflib.get_close_matches, "appel", ["ape", "apple"]).result())
        """,
    "contexts of calls": """
        import contextvars
        import decimal
        import sys

        def precision(digits):
            with decimal.localcontext() as context:
                context.prec = digits
                return decimal.Decimal(1) / 3

        def default():
            return decimal.Decimal(1) / 3, sys.getrecursionlimit() > 500

        def copied():
            return contextvars.copy_context().run(default)

        main:
        with executor(1) as workers:
            print(workers.submit(precision, 4).result(), workers.submit(default).result(), workers.submit(copied).result())
        """,
    "finalizers in a call": """
        import gc
        import weakref

        class Kept:
            pass

        def finalized():
            log = []
            kept = Kept()
            weakref.finalize(kept, log.append, "ended")
            kept.ring = kept
            del kept
            gc.collect()
            return log

        class Loud:
            def __del__(self):
                raise ValueError("in a destructor")

        def quiet():
            Loud()
            return "goes on"

        main:
        with executor(1) as workers:
            print(workers.submit(finalized).result(), workers.submit(quiet).result())
        """,
}

# Of what a program does with isopool and another peer otherwise, with the reason.
DIFFERENCES: dict[tuple[str, str], str] = {
    ("initializers", "loky"): "a global that the initializer sets is not seen",
    ("decorated functions", "loky"): "a class of the script with a cached_property has a lock in Python 3.11",
}
