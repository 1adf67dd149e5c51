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
    "types of annotations": """
        import dataclasses
        import functools
        import typing

        Identity = typing.NewType("Identity", int)
        P = typing.ParamSpec("P")
        R = typing.TypeVar("R")
        Parts = typing.TypeVarTuple("Parts")

        @dataclasses.dataclass
        class User:
            identity: Identity

        class Step(typing.Generic[P, R]):
            def __init__(self, run: typing.Callable[P, R]) -> None:
                self.run = run

        class Many(typing.Generic[typing.Unpack[Parts]]):
            pass

        def logged(function: typing.Callable[P, R]) -> typing.Callable[P, R]:
            @functools.wraps(function)
            def with_log(*args: P.args, **kwargs: P.kwargs) -> R:
                return function(*args, **kwargs)

            return with_log

        @logged
        def add(a, b):
            return a + b

        def make(number):
            return User(Identity(number)), Step(len).run("ab"), logged(add)(1, 2), Many.__parameters__ == (Parts,)

        main:
        with executor(1) as workers:
            print(workers.submit(make, 3).result(), workers.submit(add, 1, b=2).result())
            print(type(workers.submit(make, 3).result()[0]) is User, Identity.__supertype__)
        """,
    "objects of which there is one": """
        class Missing:
            def __reduce__(self):
                return "MISSING"

        class Marker:
            pass

        class Single:
            instance = None

            def __new__(cls):
                if cls.instance is None:
                    cls.instance = super().__new__(cls)
                return cls.instance

        MISSING = Missing()
        MARKER = Marker()

        def defaults(first=MISSING, second=MARKER):
            return first is MISSING, second is MARKER, Single() is Single()

        def get():
            return MISSING

        def is_it(value):
            return value is MISSING

        main:
        with executor(1) as workers:
            print(workers.submit(defaults).result(), workers.submit(is_it, MISSING).result())
            print(workers.submit(get).result() is MISSING)
        """,
    "functions that dispatch by type": """
        import functools

        class Own:
            pass

        @functools.singledispatch
        def describe(value):
            return "object"

        @describe.register
        def _(value: int):
            return "int"

        @describe.register(list)
        def _(value):
            return [describe(each) for each in value]

        @describe.register
        def _(value: Own):
            return "own"

        class Shown:
            @functools.singledispatchmethod
            def show(self, value):
                return "object"

            @show.register
            def _(self, value: int):
                return "int"

        def both(value):
            return describe(value), Shown().show(value)

        main:
        with executor(1) as workers:
            print([workers.submit(both, each).result() for each in (1, "", [1, [""]], Own())])
            print(workers.submit(describe, 1).result())
        """,
    "objects that have locks": """
        import queue
        import threading

        class Counter:
            def __init__(self):
                self.lock = threading.Lock()
                self.counts = {}

            def add(self, key):
                with self.lock:
                    self.counts[key] = self.counts.get(key, 0) + 1
                    return self.counts[key]

        event = threading.Event()
        event.set()
        condition = threading.Condition()
        semaphore = threading.Semaphore(2)
        barrier = threading.Barrier(1)
        jobs = queue.Queue()
        jobs.put("first")
        counter = Counter()

        def use():
            with condition:
                condition.notify_all()
            with semaphore:
                barrier.wait(1)
            return event.is_set(), jobs.qsize(), counter.add("a"), counter.add("a")

        main:
        with executor(1) as workers:
            print(workers.submit(use).result(), workers.submit(use).result())
        """,
    "variables of contexts": """
        import contextvars

        level = contextvars.ContextVar("level", default=1)
        bare = contextvars.ContextVar("bare")

        def look(value):
            token = bare.set(value)
            seen = level.get(), bare.get(), bare.name
            bare.reset(token)
            return seen

        main:
        with executor(1) as workers:
            print(workers.submit(look, "a").result(), workers.submit(look, "b").result())
        """,
    "libraries and layouts of C": """
        import ctypes
        import struct

        libm = ctypes.CDLL("libm.so.6")
        libm.cos.restype = ctypes.c_double
        libm.cos.argtypes = [ctypes.c_double]
        header = struct.Struct("<IH")

        def use():
            return libm.cos(0.0), header.size, header.unpack(header.pack(1, 2))

        main:
        with executor(1) as workers:
            print(workers.submit(use).result())
        """,
    "classes of every kind": """
        import abc
        import collections
        import dataclasses
        import enum
        import functools
        import typing

        class Shape(abc.ABC):
            @abc.abstractmethod
            def area(self): ...

        class Square(Shape):
            def __init__(self, side):
                self.side = side

            def area(self):
                return self.side**2

        class Virtual:
            def area(self):
                return 0

        Shape.register(Virtual)

        @typing.runtime_checkable
        class HasArea(typing.Protocol):
            def area(self): ...

        class Colour(enum.Enum):
            RED = 1
            GREEN = 2

            def next(self):
                return Colour.GREEN if self is Colour.RED else Colour.RED

        class Access(enum.IntFlag):
            READ = 1
            WRITE = 2

        @dataclasses.dataclass(frozen=True, order=True)
        class Point:
            x: int
            names: list = dataclasses.field(default_factory=list, compare=False)
            dimensions: typing.ClassVar[int] = 1

        @dataclasses.dataclass(slots=True)
        class Slim:
            value: int

        class Pair(typing.NamedTuple):
            left: int
            right: str = "r"

        Plain = collections.namedtuple("Plain", "u v")

        @functools.total_ordering
        class Version:
            def __init__(self, number):
                self.number = number

            def __eq__(self, other):
                return self.number == other.number

            def __lt__(self, other):
                return self.number < other.number

        class Doubling(dict):
            def __missing__(self, key):
                return key * 2

        class Small(int):
            pass

        class Record(typing.TypedDict):
            key: int

        def use(point, colour, access, pair):
            return (
                point, Point(point.x + 1, ["n"]), Point.dimensions, colour.next(), access | Access.WRITE,
                Pair(pair.left + 1), Plain(1, 2), Slim(3), isinstance(pair, Pair), colour is Colour.RED,
            )

        def shapes(shape):
            return shape.area(), isinstance(shape, Shape), isinstance(shape, HasArea)

        def others(versions, doubling, small):
            return min(versions).number, doubling["ab"], type(small) is Small, small + 1, Record(key=1)

        main:
        with executor(1) as workers:
            used = workers.submit(use, Point(1), Colour.RED, Access.READ, Pair(1)).result()
            print(used)
            print([type(each) is kind for each, kind in zip(used[5:8], (Pair, Plain, Slim))], used[3] is Colour.GREEN)
            print(workers.submit(shapes, Square(3)).result(), workers.submit(shapes, Virtual()).result())
            print(workers.submit(others, [Version(2), Version(1)], Doubling(), Small(4)).result())
            print(isinstance(workers.submit(Shape).exception(), TypeError))
        """,
    "registries of classes and functions": """
        class Plugin:
            plugins = []

            def __init_subclass__(cls, **options):
                super().__init_subclass__()
                Plugin.plugins.append(cls)
                cls.options = options

        class First(Plugin, key=1):
            pass

        class Second(Plugin):
            pass

        functions = {}

        def register(function):
            functions[function.__name__] = function
            return function

        @register
        def one():
            return 1

        @register
        def two():
            return one() + functions["one"]()

        def look():
            names = [each.__name__ for each in Plugin.plugins]
            return names, First in Plugin.plugins, First.options, sorted(functions), functions["two"]()

        main:
        with executor(1) as workers:
            print(workers.submit(look).result(), workers.submit(look).result())
        """,
    "descriptors": """
        import functools

        class Named:
            def __set_name__(self, owner, name):
                self.name = name

            def __get__(self, instance, owner=None):
                return self.name

        class Record:
            title = Named()

            @functools.cached_property
            def computed(self):
                return [1]

            def scaled(self, factor, value):
                return factor * value

            doubled = functools.partialmethod(scaled, 2)

            def __getattr__(self, name):
                if name.startswith("__"):
                    raise AttributeError(name)
                return name

        def use(record):
            return record.title, record.computed is record.computed, record.doubled(4), record.unknown

        main:
        with executor(1) as workers:
            print(workers.submit(use, Record()).result())
        """,
    "the script as a module": """
        import __main__
        import inspect
        import os
        import pickle

        VALUE = 3

        def names():
            return __name__, os.path.basename(__file__), VALUE, names.__module__, names.__qualname__

        def source():
            return inspect.getsource(names).splitlines()[0]

        def by_name():
            return pickle.loads(pickle.dumps(names)) is names

        def by_import():
            import __main__ as script

            return script.VALUE

        main:
        with executor(1) as workers:
            for function in (source, by_name, by_import):
                print(workers.submit(function).result())
            print(workers.submit(names).result()[1:3])
        """,
    "variables of contexts in objects": """
        import contextvars

        level = contextvars.ContextVar("level", default=0)

        class App:
            def read(self):
                return level.get()

        def use(app):
            level.set(7)
            return app.read(), level.get()

        main:
        with executor(1) as workers:
            print(workers.submit(use, App()).result())
        """,
    "what classes do about new classes": """
        class Keyword:
            def __init_subclass__(cls, *, required, **options):
                super().__init_subclass__(**options)
                cls.required = required

        class WithKeyword(Keyword, required=4):
            pass

        class Registered:
            names = []

            def __init_subclass__(cls):
                if cls.__name__ in Registered.names:
                    raise ValueError(cls.__name__)
                Registered.names.append(cls.__name__)

        class First(Registered):
            pass

        class Second(Registered):
            pass

        made = {}

        class Meta(type):
            names = []

            def __new__(meta, name, bases, attributes, **options):
                made[name] = cls = super().__new__(meta, name, bases, attributes)
                Meta.names.append(name)
                return cls

            def __init__(cls, name, bases, attributes, **options):
                super().__init__(name, bases, attributes)

        class Made(metaclass=Meta, option=1):
            value = 1

        class Derived(Made):
            value = 2

        def keyword():
            return WithKeyword.required

        def registered(value):
            return Registered.names, type(value) is First

        def metaclass():
            return Meta.names, Derived().value, type(Derived) is Meta, sorted(made), made["Made"] is Made

        main:
        with executor(1) as workers:
            print(workers.submit(keyword).result(), workers.submit(metaclass).result())
            print(workers.submit(registered, First()).result(), workers.submit(registered, First()).result())
            print(workers.submit(metaclass).result())
        """,
    "processes that multiprocessing has spawned": """
        import dataclasses

        @dataclasses.dataclass
        class Point:
            x: int

        seen = []

        def move(x):
            seen.append(x)
            return Point(x + 1), len(seen)

        def work(results):
            with executor(1) as workers:
                first, second = [workers.submit(move, each).result() for each in (1, 2)]
                results.put((str(first), second[1], type(first[0]) is Point))

        main:
        for method in ("spawn", "forkserver"):
            context = multiprocessing.get_context(method)
            results = context.SimpleQueue()
            process = context.Process(target=work, args=(results,))
            process.start()
            process.join()
            print(method, results.get() if process.exitcode == 0 else "failed")
        """,
    "functions without a name": """
        main:
        base = 5
        with executor(1) as workers:
            print(workers.submit(lambda value: value + base, 1).result())
            print(workers.submit(lambda: (lambda value: value * base)).result()(2))
        """,
    "enumerations of every form": """
        import datetime
        import enum

        class Planet(enum.Enum):
            MERCURY = (3.303e23, 2.4397e6)
            EARTH = (5.976e24, 6.37814e6)

            def __init__(self, mass, radius):
                self.mass, self.radius = mass, radius
                self.known = [*getattr(type(self), "_member_names_", ())]

            @property
            def gravity(self):
                return round(6.673e-11 * self.mass / self.radius**2, 2)

        class Coordinate(bytes, enum.Enum):
            def __new__(cls, value, label):
                made = bytes.__new__(cls, [value])
                made._value_, made.label = value, label
                return made

            X = (0, "first")
            Y = (1, "second")

        class Counted(enum.Enum):
            def __new__(cls, text):
                made = object.__new__(cls)
                made._value_, made.text = len(cls.__members__) + 1, text
                return made

            A = "a"
            B = "b"

        class Flags(enum.Flag):
            R = enum.auto()
            W = enum.auto()
            BOTH = R | W

        class Number(enum.IntEnum):
            ONE = 1
            UNO = 1
            TWO = 2

            @classmethod
            def _missing_(cls, value):
                return cls.TWO if value == "two" else None

        class Word(enum.StrEnum):
            @staticmethod
            def _generate_next_value_(name, start, count, last):
                return name + "!"

            HELLO = enum.auto()

            def twice(self):
                return self * 2

        class Day(datetime.date, enum.Enum):
            FIRST = 2000, 1, 1

        class Named:
            def __init__(self, name):
                self.title = name

            def __eq__(self, other):
                return self.title == other.title

            def __hash__(self):
                return hash(self.title)

            def __repr__(self):
                return self.title

        class Mixed(Named, enum.Enum):
            LEFT = "left"

        class Linked(enum.Enum):
            HEAD = 1
            TAIL = 2

            @property
            def other(self):
                return self.link

        Linked.HEAD.link, Linked.TAIL.link = Linked.TAIL, Linked.HEAD
        Made = enum.Enum("Made", "P Q")
        FAVORITE = Planet.EARTH

        class Outer:
            class Kind(enum.Enum):
                INNER = 1

        class Functions(enum.Enum):
            @enum.member
            def double(value):
                return 2 * value

            @enum.nonmember
            class Inner:
                pass

        ALL = [Planet, Coordinate, Counted, Flags, Number, Word, Day, Mixed, Linked, Made, Outer.Kind]

        def described(kind):
            return [(str(each), each.name, each.value, kind(each.value) is each, format(each),
                     {key: value for key, value in vars(each).items() if key not in ("__objclass__", "_inverted_")})
                    for each in kind], list(kind.__members__), kind.__qualname__

        def checks():
            return (Planet.EARTH.gravity, FAVORITE is Planet.EARTH, Coordinate(1).label, Coordinate.Y + b"z",
                    Counted.B.text, Counted(2) is Counted.B, Flags.R | Flags.W is Flags.BOTH, ~Flags.R, Flags(3),
                    [*Flags.BOTH], Number.UNO is Number.ONE, Number("two"), Number.TWO + 1, Word.HELLO.twice(),
                    Day.FIRST.year, Mixed.LEFT.title, Linked.HEAD.other is Linked.TAIL, Made.P in Made,
                    Functions.double.value(4), isinstance(Functions.Inner, type), Planet["EARTH"].known)

        def refused():
            try:
                Planet.EARTH = 5
            except AttributeError as error:
                return str(error)

        def same(value):
            return value

        main:
        with executor(1) as workers:
            print(workers.submit(checks).result(), workers.submit(refused).result())
            for kind in ALL:
                print(workers.submit(described, kind).result() == described(kind), described(kind))
                print([workers.submit(same, each).result() is each for each in kind])
            print(workers.submit(same, Flags.R | Flags.W).result())
        """,
    "classes that a module's class or metaclass notes": """
        import pathlib

        pathlib.Path(__file__).with_name("noting.py").write_text(
            "plugins = {}\\n"
            "class Plugin:\\n"
            "    key = None\\n"
            "    def __init_subclass__(cls, **more):\\n"
            "        super().__init_subclass__(**more)\\n"
            "        cls.number = len(plugins)\\n"
            "        plugins[cls.key] = cls\\n"
            "class Checked:\\n"
            "    def __init_subclass__(cls):\\n"
            "        if 'schema' not in cls.__dict__: raise TypeError('no schema')\\n"
            "class Meta(type):\\n"
            "    def __new__(kind, name, bases, body, *, table=None):\\n"
            "        if bases and table is None: raise TypeError('no table')\\n"
            "        made = super().__new__(kind, name, bases, body)\\n"
            "        made.table, made.fields = table, sorted(each for each in body if each[0] != '_')\\n"
            "        return made\\n"
            "    def __init__(kind, name, bases, body, *, table=None):\\n"
            "        super().__init__(name, bases, body)\\n"
            "class Record(metaclass=Meta): pass\\n"
        )
        import noting

        class Csv(noting.Plugin):
            key = "csv"

        class Json(noting.Plugin):
            key = "json"

        class User(noting.Record, table="users"):
            id = int

        class Shaped(noting.Checked):
            schema = {"a": 1}

        class Frozen(type):
            def __setattr__(cls, name, value):
                raise AttributeError(f"{cls.__name__} is frozen")

        class Constants(metaclass=Frozen):
            PI = 3

            def twice(self):
                return 2 * Constants.PI

        def look():
            return (sorted(noting.plugins), noting.plugins["json"] is Json, Csv.number, Json.number, User.table,
                    User.fields, Shaped.schema, Constants().twice())

        main:
        with executor(1) as workers:
            print(workers.submit(look).result())
        """,
    "names of classes in classes": """
        import dataclasses
        import pickle
        import typing

        class Outer:
            @dataclasses.dataclass
            class Data:
                value: int

            class Failed(Exception):
                pass

            def make(self):
                return Outer.Data(1)

        def names():
            return Outer.Data.__qualname__, Outer.make.__qualname__, repr(Outer().make()), Outer.Failed.__qualname__

        def copied(value):
            return pickle.loads(pickle.dumps(value)), type(value).__qualname__

        def fail():
            raise Outer.Failed("it")

        class Box(typing.Generic[typing.TypeVar("Inside")]):
            def __init__(self, value):
                self.value = value

        _Hidden = typing.TypeVar("Visible")

        class Bag(typing.Generic[_Hidden]):
            def __init__(self, value: _Hidden):
                self.value = value

        def opened(box):
            return box.value, str(type(box).__parameters__), Bag[int].__origin__ is Bag

        main:
        with executor(1) as workers:
            print(workers.submit(copied, Outer.Data(2)).result(), workers.submit(names).result())
            print(workers.submit(opened, Box(1)).result(), workers.submit(opened, Bag(2)).result())
            try:
                workers.submit(fail).result()
            except Outer.Failed as error:
                print(repr(error))
        """,
}

OWN = "a copy of the script, in which the program has changed nothing"
AT_ITS_START = "what the program had when the worker was forked"
BY_NAME = "functions go by their names only"
COPIES = "each function of the script has its own copy of the globals, a new one for each call"
NOT_FOUND = "goes by its name, which workers don't find"
UNPICKLABLE = "such objects can't be pickled"
CLOUDPICKLE = "classes have no slots, and code no file, with cloudpickle"

# What a peer does, or prints, otherwise, and why.
DIFFERENCES = {
    ("a global that the initializer sets", "loky"): COPIES,
    ("a global that only the initializer has", "loky"): COPIES,
    ("state that calls leave", "loky"): COPIES,
    ("functions with a cache", "loky"): COPIES,
    ("locks, and variables of threads", "loky"): COPIES,
    ("globals that are parts of others", "loky"): COPIES,
    ("methods with a cache", "loky"): NOT_FOUND,
    ("objects with slots", "loky"): CLOUDPICKLE,
    ("exceptions of the script", "loky"): CLOUDPICKLE,
    ("a global that a function has set before", "spawn"): OWN,
    ("a global that changes later", "fork"): AT_ITS_START,
    ("a global that changes later", "spawn"): OWN,
    ("functions that begin under the guard", "spawn"): OWN,
    ("functions without a name", "fork"): BY_NAME,
    ("functions without a name", "spawn"): BY_NAME,
    ("types of annotations", "loky"): NOT_FOUND,
    ("objects of which there is one", "loky"): NOT_FOUND,
    ("functions that dispatch by type", "loky"): UNPICKLABLE,
    ("objects that have locks", "loky"): UNPICKLABLE,
    ("variables of contexts", "loky"): UNPICKLABLE,
    ("variables of contexts in objects", "loky"): UNPICKLABLE,
    ("what classes do about new classes", "loky"): "each copy of a class is a new one for __init_subclass__",
    ("processes that multiprocessing has spawned", "loky"): NOT_FOUND,
    ("libraries and layouts of C", "loky"): UNPICKLABLE,
    ("classes of every kind", "loky"): CLOUDPICKLE,
    ("the script as a module", "loky"): CLOUDPICKLE,
    ("descriptors", "loky"): UNPICKLABLE,
    ("enumerations of every form", "loky"): "members are made again without their class's __init__ and __new__",
    ("classes that a module's class or metaclass notes", "loky"): "the module sees each class without its attributes",
    ("names of classes in classes", "loky"): "classes lose the names of the classes around them",
}
