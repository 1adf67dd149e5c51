# SPDX-License-Identifier: BSD-3-Clause
"""Programs with an executor, for test_main_script.py, and how what they print differs from its peers."""

# The part before "main:" is the top level, the other one is guarded by __name__ == "__main__".
PROGRAMS = {
    "a global that the initializer sets": """
        state = 0

        def begin(value):
            global state
            state = value

        def scaled(number):
            return state * number

        main:
        with executor(2, initializer=begin, initargs=(10,)) as workers:
            print(list(workers.map(scaled, range(4))))
        """,
    "a global that only the initializer has": """
        def begin():
            global connection
            connection = ["open"]

        def use():
            return connection

        main:
        with executor(1, initializer=begin) as workers:
            print(workers.submit(use).result())
        """,
    "state that calls leave": """
        count = 0
        seen = {}

        def add(key):
            global count
            count += 1
            seen[key] = count
            return count, dict(seen)

        main:
        with executor(1) as workers:
            print([workers.submit(add, each).result() for each in "aba"], count, seen)
        """,
    "functions with a cache": """
        import functools

        computed = []

        @functools.cache
        def square(number):
            computed.append(number)
            return number * number, len(computed)

        @functools.lru_cache(maxsize=1)
        def cube(number):
            return number**3

        main:
        with executor(1) as workers:
            print([workers.submit(square, each).result() for each in (2, 3, 2, 2)], computed)
            print(list(workers.map(cube, [1, 2, 1])))
        """,
    "locks, and variables of threads": """
        import threading

        lock = threading.Lock()
        again = threading.RLock()
        own = threading.local()

        def locked(value):
            with lock, again, again:
                own.value = value
                return own.value, lock.locked()

        main:
        with executor(1) as workers:
            print(workers.submit(locked, 5).result(), lock.locked())
        """,
    "objects with slots": """
        class Point:
            __slots__ = ("x", "y")

            def __init__(self, x, y):
                self.x, self.y = x, y

        class Named(Point):
            __slots__ = ("name",)

        class Plain(Point):
            __slots__ = ()

        def moved(point):
            point.x += 1
            return point

        def made(kind):
            return kind(1, 2)

        main:
        with executor(1) as workers:
            for kind in (Point, Named, Plain):
                for each in (workers.submit(made, kind).result(), workers.submit(moved, kind(3, 4)).result()):
                    print(type(each) is kind, each.x, each.y, hasattr(each, "__dict__"), hasattr(each, "name"))
        """,
    "enumerations, dataclasses and tuples": """
        import collections
        import dataclasses
        import enum
        import typing

        class Color(enum.Enum):
            RED = 1
            BLUE = 2

            def label(self):
                return PREFIX + self.name

        class Bits(enum.IntFlag):
            A = 1
            B = 2

        PREFIX = "color "
        Pair = collections.namedtuple("Pair", "left right")

        @dataclasses.dataclass(frozen=True, order=True)
        class Item:
            size: int
            color: Color = Color.RED

        class Entry(typing.NamedTuple):
            key: str
            item: Item

        def same(value):
            return value

        main:
        values = [Color.BLUE, Bits.A | Bits.B, Pair(1, Color.RED), Item(3), Entry("k", Item(1, Color.BLUE))]
        with executor(1) as workers:
            for value in values:
                result = workers.submit(same, value).result()
                print(result == value, type(result) is type(value), result)
            print(workers.submit(same, Color.RED).result() is Color.RED)
            print(workers.submit(Color.label, Color.BLUE).result(), workers.submit(max, Item(1), Item(2)).result())
        """,
    "classes that know each other": """
        class Base:
            kinds = {}

            def __init_subclass__(cls):
                Base.kinds[cls.__name__] = cls

        class First(Base):
            def other(self):
                return Second()

        class Second(Base):
            first = First

            def name(self):
                return f"{super().__repr__() is not None} {type(self).__name__}"

        def look(second):
            return (sorted(Base.kinds), Base.kinds["First"] is First, isinstance(second, Base),
                    Second.first is First, First().other().name(), type(second) is Second)

        main:
        with executor(1) as workers:
            print(workers.submit(look, Second()).result())
        """,
    "methods of all kinds": """
        import functools

        OFFSET = 7

        class Thing:
            class Inner:
                def name(self):
                    return "inner", type(self) is Thing.Inner

            def __init__(self, value):
                self.value = value

            def plus(self, other):
                return self.value + other + OFFSET

            @staticmethod
            def fixed(value):
                return value + OFFSET

            @classmethod
            def made(cls, value):
                return cls(value)

            @property
            def double(self):
                return 2 * self.value

            def __call__(self):
                return self.double

        main:
        with executor(1) as workers:
            thing = Thing(3)
            print(workers.submit(thing.plus, 1).result(), workers.submit(Thing.plus, thing, 1).result())
            print(workers.submit(Thing.fixed, 1).result(), workers.submit(Thing.made, 5).result().value)
            print(workers.submit(thing).result(), workers.submit(Thing.Inner().name).result())
            print(workers.submit(functools.partial(thing.plus, 2)).result())
        """,
    "functions that call functions": """
        import functools

        def even(number):
            return number == 0 or odd(number - 1)

        def odd(number):
            return number != 0 and even(number - 1)

        def logged(function):
            @functools.wraps(function)
            def wrapper(*arguments):
                return function.__name__, function(*arguments)
            return wrapper

        @logged
        def decorated(value, more=even, *, limit=10):
            return more(value), limit

        main:
        with executor(1) as workers:
            print(list(workers.map(even, range(5))), workers.submit(decorated, 3).result())
            print(list(workers.map(odd, range(10), chunksize=3)))
        """,
    "modules and their parts": """
        import collections.abc
        import concurrent.futures
        import os.path
        import xml.dom.minidom as dom

        def used():
            document = dom.parseString("<a/>")
            return (document.documentElement.tagName, os.path.basename("/a/b"),
                    isinstance([], collections.abc.Sequence), concurrent.futures.ALL_COMPLETED)

        main:
        with executor(1) as workers:
            print(workers.submit(used).result())
        """,
    "exceptions of the script": """
        import traceback

        class Refused(Exception):
            def __init__(self, what):
                super().__init__(what)
                self.what = what

        def refuse(what):
            raise Refused(what)

        main:
        with executor(1) as workers:
            try:
                workers.submit(refuse, "this").result()
            except Refused as error:
                text = "".join(traceback.format_exception(error))
                print(error.what, type(error) is Refused, "in refuse" in text, "raise Refused(what)" in text,
                      __file__ in text)
        """,
    "the program's arguments, and where it runs": """
        import os

        def where():
            return sys.argv, os.getcwd(), os.environ["OF_THE_PROGRAM"], os.path.basename(__file__)

        main:
        os.environ["OF_THE_PROGRAM"] = "set"
        with executor(1) as workers:
            print(workers.submit(where).result())
        """,
    "executors in workers": """
        def power(base):
            return base**2

        def outer(base):
            with executor(1) as inner:
                return inner.submit(power, base).result()

        main:
        with executor(1) as workers:
            print(workers.submit(outer, 3).result())
        """,
    "globals that are parts of others": """
        MISSING = object()
        DEFAULTS = {"a": MISSING}
        items = []
        alias = items

        class Service:
            empty = MISSING

            def __init__(self, settings):
                self.settings = settings

        settings = {"rate": 1}
        service = Service(settings)

        def look(value, missing=MISSING):
            alias.append(value)
            service.settings["rate"] += 1
            return (DEFAULTS["a"] is MISSING, missing is MISSING, Service.empty is MISSING,
                    service.settings is settings, settings, items)

        main:
        with executor(1) as workers:
            print(workers.submit(look, 1).result())
            print(workers.submit(look, 2).result())
        """,
    "methods with a cache": """
        import functools

        class Table:
            @functools.lru_cache(maxsize=None)
            def row(self, number):
                return number * FACTOR

            @staticmethod
            @functools.cache
            def fixed(number):
                return number + FACTOR

        FACTOR = 3

        def use(table):
            return table.row(2), Table.fixed(2), Table.row.cache_info().misses

        main:
        with executor(1) as workers:
            print(workers.submit(use, Table()).result())
        """,
    "objects whose state needs globals": """
        import threading

        UNIT = 10

        class Meter:
            def __init__(self, value):
                self.value = value
                self.lock = threading.Lock()

            def __getstate__(self):
                return self.value

            def __setstate__(self, value):
                self.value = value * UNIT // UNIT
                self.lock = threading.Lock()

        class Key:
            def __init__(self, name):
                self.name = name

            def __hash__(self):
                return hash(self.name) + UNIT

            def __eq__(self, other):
                return self.name == other.name

        meter = Meter(5)
        table = {Key("a"): 1}

        def use():
            return meter.value, table[Key("a")]

        main:
        with executor(1) as workers:
            print(workers.submit(use).result())
        """,
    "a global that a function has set before": """
        settings = None

        def load():
            global settings
            settings = {"rate": 3}

        def use():
            return settings

        main:
        load()
        with executor(1) as workers:
            print(workers.submit(use).result())
        """,
    "a global that changes later": """
        rate = 1

        def use():
            return rate

        main:
        with executor(1) as workers:
            print(workers.submit(use).result())
            rate = 2
            print(workers.submit(use).result())
            rate = 1
            print(workers.submit(use).result())
        """,
    "functions that begin under the guard": """
        main:
        base = 5

        def added(value):
            return value + base

        with executor(1) as workers:
            print(workers.submit(added, 1).result())
        """,
    "functions without a name": """
        main:
        base = 5
        with executor(1) as workers:
            print(workers.submit(lambda value: value + base, 1).result())
            print(workers.submit(lambda: (lambda value: value * base)).result()(2))
        """,
}

OWN = "a copy of the script, in which the program has changed nothing"
AT_ITS_START = "what the program had when the worker was forked"
BY_NAME = "functions go by their names only"
COPIES = "each function of the script has its own copy of the globals, a new one for each call"
CLOUDPICKLE = "classes have no slots, and code no file, with cloudpickle"

# What a peer does, or prints, otherwise, and why.
DIFFERENCES = {
    ("a global that the initializer sets", "loky"): COPIES,
    ("a global that only the initializer has", "loky"): COPIES,
    ("state that calls leave", "loky"): COPIES,
    ("functions with a cache", "loky"): COPIES,
    ("locks, and variables of threads", "loky"): COPIES,
    ("globals that are parts of others", "loky"): COPIES,
    ("methods with a cache", "loky"): "goes by its name, which workers don't find",
    ("objects with slots", "loky"): CLOUDPICKLE,
    ("exceptions of the script", "loky"): CLOUDPICKLE,
    ("a global that a function has set before", "spawn"): OWN,
    ("a global that changes later", "fork"): AT_ITS_START,
    ("a global that changes later", "spawn"): OWN,
    ("functions that begin under the guard", "spawn"): OWN,
    ("functions without a name", "fork"): BY_NAME,
    ("functions without a name", "spawn"): BY_NAME,
}
