# SPDX-License-Identifier: BSD-3-Clause
"""Functions, classes and other globals of the program's main script, which workers can't import: for both sides.

What the main script has under a name goes by this name: in a worker it is the same object in all calls, also where
other globals refer to it. A worker has one namespace for the main script of an Executor. A global gets into it with the
first call that uses it, and again with the next one after the program has changed it; else the namespace keeps what
functions have set there.

payload.py makes and reads the pickles.
"""

import _thread
import abc
import builtins
import contextvars
import copyreg
import ctypes
import dis
import enum
import functools
import hashlib
import io
import linecache
import marshal
import multiprocessing.reduction
import os
import socket
import struct
import sys
import threading
import types
import typing
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from _abc import _abc_init  # type: ignore[import-not-found]
from cloudpickle.cloudpickle import (  # type: ignore[import-untyped]
    _get_or_create_tracker_id,
    _lookup_class_or_track,
)

from . import class_ids

_GLOBAL_OPERATIONS = frozenset(
    {"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
)
# The second name is that of the script in a process that multiprocessing has spawned.
MAIN_NAMES = ("__main__", "__mp_main__")
_FUNCTION_ATTRIBUTES = ("__defaults__", "__kwdefaults__", "__module__", "__qualname__", "__doc__", "__annotations__")
_CACHED = type(functools.lru_cache(lambda: None))
_DISPATCHER: types.CodeType = functools.singledispatch(lambda thing: None).__code__  # type: ignore[attr-defined]
# What can't be sent, and what each worker needs one of its own of. In a global also as a part of other objects, such as
# a threading.Event.
_MADE_ANEW: dict[type, Callable[[], Any]] = {
    type(_thread.allocate_lock()): threading.Lock,
    type(threading.RLock()): threading.RLock,
    threading.local: threading.local,
}


class Definition(NamedTuple):
    """A global of the main script: the pickle of its value, and what tells whether a worker has it.

    Both are empty if there is no such global.
    """

    name: str
    digest: bytes
    pickled: bytes
    before: tuple[str, ...] = ()  # of a class: its bases, which may refer to it
    submodules: tuple[str, ...] = ()  # of a module: those that the functions use
    sources: tuple[tuple[str, str], ...] = ()  # of files that workers can't read: names and texts, for tracebacks


class _Names(NamedTuple):
    used: frozenset[str]  # as globals
    attributes: frozenset[str]  # as anything, also as attributes


@functools.lru_cache(4096)
def _names_in(code: types.CodeType) -> _Names:
    used = {each.argval for each in dis.get_instructions(code) if each.opname in _GLOBAL_OPERATIONS}
    attributes = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner = _names_in(constant)
            used |= inner.used
            attributes |= inner.attributes
    return _Names(frozenset(used), frozenset(attributes))


class Digests(dict[str, bytes]):
    """What tells whether a worker has the globals of these names."""


class Main:
    """The main script in this process: that of the program itself."""

    sends_globals = True

    def __init__(self, module: types.ModuleType) -> None:
        self.module = module

    def member(self, name: str) -> Any:
        """What a pickle refers to by this name in this module."""
        own = _MEMBERS.get(name)
        return globals()[name] if own is None else getattr(self, own)

    def attribute(self, name: str) -> Any:
        """Raises AttributeError."""
        return functools.reduce(getattr, name.split("."), self.module)

    def name_of(self, thing: Any) -> str | None:
        """The name under which the main script has this function or class."""
        if getattr(thing, "__module__", None) not in MAIN_NAMES:
            return None
        name = thing.__qualname__
        return name if isinstance(name, str) and self.is_named(thing, name) else None

    def is_named(self, thing: Any, name: str) -> bool:
        try:
            return self.attribute(name) is thing
        except AttributeError:
            return False

    def global_of(self, thing: Any) -> str | None:
        """The name of a global that is this very object."""
        return next((name for name, each in [*self.module.__dict__.items()] if each is thing), None)

    # What a pickle calls, see _MEMBERS.

    def make_function(self, code: bytes, name: str, cells: int) -> types.FunctionType:
        closure = tuple(types.CellType() for _ in range(cells))
        return types.FunctionType(marshal.loads(code), self.module.__dict__, name, None, closure)

    def make_named(self, name: str, make: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """A function or class whose state, which may refer to it by its name, follows."""
        made = make(*arguments)
        setattr(self.module, name, made)
        return made

    def apply(self, definitions: list[tuple[Any, ...]]) -> Digests:
        raise AssertionError("a worker sends no globals")


def set_function(function: types.FunctionType, state: tuple[dict[str, Any], dict[str, Any], list[Any]]) -> None:
    attributes, own, cells = state
    for name, value in attributes.items():
        setattr(function, name, value)
    function.__dict__.update(own)
    for cell, contents in zip(function.__closure__ or (), cells, strict=True):
        if contents:
            cell.cell_contents = contents[0]


def make_property(function: Callable[..., Any], name: str | None) -> Any:
    made = functools.cached_property(function)
    if name is not None:
        made.__set_name__(type, name)
    return made


def make_cached(function: Callable[..., Any], maxsize: int | None, typed: bool) -> Any:
    return functools.lru_cache(maxsize, typed)(function)


def make_dispatcher(functions: dict[type, Callable[..., Any]]) -> Any:
    dispatcher = functools.singledispatch(functions[object])
    for kind, function in functions.items():
        dispatcher.register(kind, function)
    return dispatcher


def make_dispatching_method(dispatcher: Any, function: Callable[..., Any]) -> Any:
    made = functools.singledispatchmethod(function)
    made.dispatcher = dispatcher
    return made


def make_library(kind: type, name: str | None, functions: dict[str, tuple[Any, ...]]) -> Any:
    library = kind(name)
    for each, types_and_check in functions.items():
        function = getattr(library, each)
        function.argtypes, function.restype, check = types_and_check
        if check is not None:
            function.errcheck = check
    return library


# Classes that are new in this process, until they have their attributes.
_NEW_CLASSES: weakref.WeakSet[type] = weakref.WeakSet()


def make_class(metaclass: Any, name: str, bases: tuple[type, ...], body: dict[str, Any], tracker: str) -> type:
    """A class whose other attributes follow, see set_class().

    It is a copy, not a new class of the script: what the script does about these (metaclasses and __init_subclass__,
    which may note it somewhere) it has done in the program, and its effects come with the globals. The metaclass of a
    module sees the name only; if it refuses that, the class is made without it.
    """
    hooks = {each: each.__dict__["__init_subclass__"] for base in bases for each in base.__mro__ if _has_hook(each)}
    maker = next(each for each in metaclass.__mro__ if each.__module__ not in MAIN_NAMES)
    native = next(each for each in metaclass.__mro__ if not _is_of_python(each, "__new__"))
    if issubclass(maker, enum.EnumType):
        maker = native  # the members are made one by one
    for each in hooks:
        type.__setattr__(each, "__init_subclass__", classmethod(lambda cls, **_: None))
    try:
        try:
            namespace = maker.__prepare__(name, bases)
            namespace.update(body)
            made = maker.__new__(metaclass, name, bases, namespace)
        except Exception:
            maker = native
            made = native.__new__(metaclass, name, bases, dict(body))
        if maker is native and issubclass(metaclass, abc.ABCMeta):
            _abc_init(made)
        if not _is_of_python(maker, "__init__"):
            maker.__init__(made, name, bases, {})
    finally:
        for each, hook in hooks.items():
            type.__setattr__(each, "__init_subclass__", hook)
    _NEW_CLASSES.add(made)
    return _lookup_class_or_track(class_ids.received(tracker), made)  # type: ignore[no-any-return]


def _has_hook(kind: type) -> bool:
    return "__init_subclass__" in kind.__dict__ and kind.__flags__ & _IS_CHANGEABLE == _IS_CHANGEABLE


_IS_CHANGEABLE = 1 << 9  # Py_TPFLAGS_HEAPTYPE


def _is_of_python(kind: type, method: str) -> bool:
    function = getattr(kind, method)
    return isinstance(function, types.FunctionType)


def set_class(kind: type, state: tuple[dict[str, Any], dict[str, dict[str, Any]]]) -> None:
    attributes, members = state
    _set_attributes(kind, attributes)
    for name, own in members.items():
        kind._member_map_[name].__dict__.update(own)  # type: ignore[attr-defined]
    if kind in _NEW_CLASSES:
        _NEW_CLASSES.discard(kind)
        _enter_in_modules(kind)
        _set_attributes(kind, attributes)


def _set_attributes(kind: type, attributes: dict[str, Any]) -> None:
    # Without a metaclass, which may refuse it. The second setting of its first line is for Python 3.13, where each other
    # one deletes it.
    for name, value in [*attributes.items(), *(each for each in attributes.items() if each[0] == "__firstlineno__")]:
        if name == "_abc_impl":
            for each in value:
                abc.ABCMeta.register(kind, each)  # type: ignore[arg-type]
        else:
            type.__setattr__(kind, name, value)


def _enter_in_modules(kind: type) -> None:
    """Lets modules note a class, as they do when a script makes it: they have not seen it in this process.

    What they set in it, it has already.
    """
    hook = _of_module(kind.__mro__[1:], "__init_subclass__").__get__(None, kind)
    begin = _of_module(type(kind).__mro__, "__init__").__get__(kind)
    for note, arguments in ((begin, (kind.__name__, kind.__bases__, dict(kind.__dict__))), (hook, ())):
        try:
            note(*arguments)
        except Exception:
            pass  # the keywords of the class are not known here


def _of_module(owners: Any, name: str) -> Any:
    return next(each.__dict__[name] for each in owners if name in each.__dict__ and each.__module__ not in MAIN_NAMES)


def make_member(kind: Any, name: str, maker: Any, arguments: tuple[Any, ...]) -> Any:
    """A member of an enumeration whose attributes follow with those of its class."""
    if name not in kind._member_map_:
        made = maker.__new__(kind, *arguments)
        made._name_ = name
        kind._member_map_[name] = made
    return kind._member_map_[name]


def make_context_variable(name: str, default: tuple[Any, ...]) -> Any:
    return contextvars.ContextVar(name, default=default[0]) if default else contextvars.ContextVar(name)


def make_type_variable(kind: Callable[..., Any], name: str, options: dict[str, Any], module: str) -> Any:
    made = kind(name, **options)
    made.__module__ = module
    return made


class Namespace(Main):
    """The main script of an Executor's program in a worker. read: makes an object of a pickle, for this namespace."""

    sends_globals = False

    def __init__(self, read: Callable[[bytes, "Namespace"], Any]) -> None:
        super().__init__(types.ModuleType("__main__"))
        self.module.__dict__["__builtins__"] = builtins
        self._read = read
        self._digests: dict[str, bytes] = {}
        self._awaited: dict[str, Definition] = {}

    def has(self, digests: Digests) -> bool:
        """True if the globals are those of these digests."""
        return all(self._digests.get(name, b"") == digest for name, digest in digests.items())

    def apply(self, definitions: list[tuple[Any, ...]]) -> Digests:
        all_ = [*map(Definition._make, definitions)]
        for each in all_:
            for module in each.submodules:
                __import__(module)
            for file, text in each.sources:
                linecache.cache[file] = (len(text), None, text.splitlines(True), file)
            former = self._digests.get(each.name, b"")
            if not each.digest and former:
                self.module.__dict__.pop(each.name, None)
                del self._digests[each.name]
            elif former != each.digest:
                self._awaited[each.name] = each
        while self._awaited:
            self._define(next(iter(self._awaited)))
        return Digests((each.name, each.digest) for each in all_)

    def attribute(self, name: str) -> Any:
        # One global's value may refer to others, also in a circle.
        top = name.partition(".")[0]
        if top in self._awaited:
            self._define(top)
        return super().attribute(name)

    def _define(self, name: str) -> None:
        for base in self._awaited[name].before:
            if base in self._awaited:
                self._define(base)
        if name not in self._awaited:
            return  # a base has needed it
        definition = self._awaited.pop(name)
        try:
            value = self._read(definition.pickled, self)
        except BaseException as error:
            error.add_note(f"This was about the global {name} of the main script.")
            self._awaited.clear()
            raise
        setattr(self.module, name, value)
        self._digests[name] = definition.digest


def is_importable(thing: Any) -> bool:
    module = sys.modules.get(thing.__module__)
    if module is None or thing.__module__ in MAIN_NAMES:
        return False
    try:
        return functools.reduce(getattr, thing.__qualname__.split("."), module) is thing
    except AttributeError:
        return False


def _marshalled(code: types.CodeType) -> bytes:
    try:
        return marshal.dumps(code, 2)  # newer versions depend on how often constants are referred to
    except ValueError:
        return marshal.dumps(code)  # a constant slice, since Python 3.14


def _has_slots(kind: type) -> bool:
    # A NamedTuple gets its empty ones by itself.
    slots = kind.__dict__.get("__slots__")
    return slots is not None and (slots != () or not issubclass(kind, tuple))


def _is_by_value(reduced: Any) -> bool:
    made_by = getattr(reduced[0], "__name__", None) if isinstance(reduced, tuple) else None
    return made_by in ("_make_skeleton_class", "_make_skeleton_enum")


def _maker_of(member: enum.Enum) -> tuple[type, tuple[Any, ...]] | None:
    """A class and the arguments with which its __new__ makes an object with the member's value, without its attributes."""
    maker: Any = next(
        each for each in type(member).__mro__ if "__new__" in each.__dict__ and not _is_of_python(each, "__new__")
    )
    if maker is object:
        return object, ()
    if hasattr(maker, "__getnewargs__"):
        return maker, maker.__getnewargs__(member)
    make, arguments, *_ = maker.__reduce_ex__(member, 2)
    return (maker, arguments) if make is type(member) else None


def _has_makers(kind: Any) -> bool:
    return not isinstance(kind, enum.EnumType) or None not in map(_maker_of, kind._member_map_.values())


def _class(kind: Any, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """reduced: how cloudpickle reduces a class that goes by value."""
    attributes: dict[str, Any] = dict(reduced[2][0])
    members: dict[str, dict[str, Any]] = {}
    body = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    if _has_slots(kind):
        # cloudpickle makes a class without slots, whose objects the other side can't read.
        attributes = {key: each for key, each in attributes.items() if type(each) is not types.MemberDescriptorType}
        body["__slots__"] = attributes.pop("__slots__")
    if isinstance(kind.__dict__.get("__dict__"), property):
        body["__dict__"] = kind.__dict__["__dict__"]
    if "__orig_bases__" in attributes:
        body["__orig_bases__"] = ()  # Generic looks for it
    if isinstance(kind, enum.EnumType):
        named = kind._member_map_
        attributes = {**kind.__dict__, **attributes}
        attributes = {key: each for key, each in attributes.items() if key not in ("__dict__", "__weakref__")}
        # Combinations of flags are made when they are first used.
        attributes["_value2member_map_"] = {
            value: each for value, each in kind._value2member_map_.items() if named.get(each._name_) is each
        }
        body["_member_map_"] = {}
        members = {
            name: {key: None if key == "_inverted_" else value for key, value in each.__dict__.items()}
            for name, each in named.items()
            if name == each._name_
        }
    arguments = (type(kind), kind.__name__, kind.__bases__, body, _get_or_create_tracker_id(kind))
    return make_class, arguments, (attributes, members), None, None, set_class


def _library(library: ctypes.CDLL) -> tuple[Any, ...]:
    functions = {
        name: (each.argtypes, each.restype, getattr(each, "errcheck", None))
        for name, each in vars(library).items()
        if isinstance(each, ctypes._CFuncPtr)  # type: ignore[attr-defined]
    }
    return make_library, (type(library), library._name, functions)


def _context_variable(variable: contextvars.ContextVar[Any]) -> tuple[Any, ...]:
    default: tuple[Any, ...]
    try:
        default = (contextvars.Context().run(variable.get),)
    except LookupError:
        default = ()
    return make_context_variable, (variable.name, default)


_TYPE_VARIABLES = (typing.ParamSpec, typing.TypeVarTuple)


def _type_variable(variable: Any) -> tuple[Any, ...]:
    options = {}
    for name in ("bound", "covariant", "contravariant", "infer_variance"):
        if value := getattr(variable, f"__{name}__", None):
            options[name] = value
    if (has_default := getattr(variable, "has_default", None)) is not None and has_default():
        options["default"] = variable.__default__
    return make_type_variable, (type(variable), variable.__name__, options, variable.__module__)


def _reduces_itself(kind: Any) -> bool:
    return kind.__reduce__ is not object.__reduce__ and kind.__reduce_ex__ is object.__reduce_ex__


_REDUCERS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    # It has a lock in Python 3.11.
    functools.cached_property: lambda each: (make_property, (each.func, each.attrname)),
    functools.singledispatchmethod: lambda each: (make_dispatching_method, (each.dispatcher, each.func)),
    struct.Struct: lambda each: (struct.Struct, (each.format,)),
    contextvars.ContextVar: _context_variable,
}


def _passed_by_multiprocessing(thing: Any) -> Callable[[Any], tuple[Any, ...]] | None:
    """The reducer of an object whose pickle by pickle itself would have the number of a descriptor, or be a copy.

    Both would go unnoticed: a worker would use its own descriptor of that number, and write to the copy.
    """
    reduce = multiprocessing.reduction.ForkingPickler._extra_reducers.get(type(thing))  # type: ignore[attr-defined]
    module = getattr(reduce, "__module__", None)
    if module == "multiprocessing.sharedctypes":
        return reduce if hasattr(thing, "_wrapper") else None  # any other object of ctypes has memory of its own
    passes = module in ("multiprocessing.connection", "multiprocessing.heap") or isinstance(thing, socket.socket)
    return reduce if passes else None


class Reducer:
    """Reduces what belongs to the main script, for one pickler, and notes the globals that it uses.

    root: the value of the global `root_name`, which does not go by its name. define: makes the definition of a global
    now, and returns its name; None if the object is no global that other pickles may refer to. read_once: the pickle is
    read by one worker only, so that a descriptor can go with it.
    """

    def __init__(
        self,
        main: Main,
        root: Any = None,
        root_name: str | None = None,
        define: Callable[[Any], str | None] | None = None,
        read_once: bool = False,
    ) -> None:
        self.used: set[str] = set()
        self.parts: set[str] = set()  # globals that are parts of the object
        self.attributes: set[str] = set()
        self.files: set[str] = set()
        self.main = main
        self._root = root
        self._root_name = root_name
        self._define = define
        self._read_once = read_once
        self._classes: set[type] = set()  # that go by value with the object

    def global_of(self, thing: Any) -> str | None:
        """The name of the global that this object is, if the pickle is to refer to it: persistent_id()."""
        name = self._define(thing) if self._define is not None and type(thing) not in self._classes else None
        if name is not None:
            self.parts.add(name)
        return name

    def reduced(self, thing: Any, otherwise: Callable[[Any], Any]) -> Any:
        """What reducer_override() returns. otherwise: the one of cloudpickle."""
        kind = type(thing)
        is_root = self._root_name is not None and thing is self._root
        if kind is not types.FunctionType and kind is not _CACHED and not isinstance(thing, type):
            return self._reduced_object(thing, is_root, otherwise)
        name = self.main.name_of(thing)
        if name is not None and (top := name.partition(".")[0]) != self._root_name:
            self.used.add(top)
            return main_attribute, (name,)
        if kind is types.FunctionType and thing.__globals__ is self.main.module.__dict__:
            reduced = self._function(thing)
        elif kind is types.FunctionType and thing.__code__ is _DISPATCHER and not is_importable(thing):
            reduced = make_dispatcher, (dict(thing.registry),)
        elif kind is _CACHED and not is_importable(thing):
            parameters = thing.cache_parameters()
            reduced = make_cached, (thing.__wrapped__, parameters["maxsize"], parameters["typed"])
        else:
            reduced = otherwise(thing)
            if isinstance(thing, type) and _is_by_value(reduced) and _has_makers(thing):
                self._classes.add(thing)
                reduced = _class(thing, reduced)
        if is_root and isinstance(reduced, tuple):
            return main_named, (self._root_name, *reduced[:2]), *reduced[2:]
        return reduced

    def _reduced_object(self, thing: Any, is_root: bool, otherwise: Callable[[Any], Any]) -> Any:
        kind = type(thing)
        if self._root_name is not None and kind in _MADE_ANEW:
            return _MADE_ANEW[kind], ()
        if kind is contextvars.ContextVar and not is_root:
            name = self.main.global_of(thing)
            if name is None:
                raise TypeError("cannot pickle '_contextvars.ContextVar' object")
            self.used.add(name)
            return main_attribute, (name,)
        reduce = _REDUCERS.get(kind)
        if reduce is not None:
            return reduce(thing)
        if isinstance(thing, enum.Enum) and self._is_member(thing) and (maker := _maker_of(thing)) is not None:
            return make_member, (kind, thing._name_, *maker)
        if kind is io.TextIOWrapper and thing not in (sys.stdout, sys.stderr, sys.stdin):
            # cloudpickle would send the text that is in it, as another kind of file.
            raise TypeError(f"cannot pickle '{kind.__module__}.{kind.__name__}' object")
        if isinstance(thing, ctypes.CDLL):
            return _library(thing)
        if (passed := _passed_by_multiprocessing(thing)) is not None:
            if not self._read_once:
                raise TypeError(
                    f"cannot pickle '{kind.__module__}.{kind.__qualname__}' object: its descriptor or memory is this "
                    "process's own. A connection or a socket can be an argument of a call"
                )
            return passed(thing)
        if getattr(thing, "__module__", None) not in MAIN_NAMES or not _reduces_itself(kind):
            return otherwise(thing)
        reduced = thing.__reduce_ex__(5)
        if not isinstance(reduced, str):
            return reduced
        # The name of a global, as typing.NewType and objects have it of which there is to be one.
        if is_root:
            if kind in _TYPE_VARIABLES:
                return _type_variable(thing)
            return copyreg.__newobj__, (kind,), object.__getstate__(thing)  # type: ignore[attr-defined]
        if isinstance(thing, (typing.TypeVar, *_TYPE_VARIABLES)) and not self.main.is_named(thing, reduced):
            name = self.main.global_of(thing)
            if name is None:
                return otherwise(thing) if kind is typing.TypeVar else _type_variable(thing)
            reduced = name
        self.used.add(reduced.partition(".")[0])
        return main_attribute, (reduced,)

    def _is_member(self, thing: Any) -> bool:
        """Whether the enumeration is perhaps without members while the pickle is read."""
        kind = type(thing)
        defined = kind in self._classes or self._root_name is not None and self.main.name_of(kind) is not None
        return defined and kind._member_map_.get(thing._name_) is thing

    def _function(self, function: types.FunctionType) -> tuple[Any, ...]:
        code = function.__code__
        names = _names_in(code)
        self.used |= names.used
        self.used.add("__package__")  # for relative imports
        self.attributes |= names.attributes
        self.files.add(code.co_filename)
        cells: list[Any] = []
        for cell in function.__closure__ or ():
            try:
                cells.append((cell.cell_contents,))
            except ValueError:  # empty
                cells.append(())
        attributes = {}
        for name in _FUNCTION_ATTRIBUTES:
            try:
                attributes[name] = getattr(function, name)
            except NameError:
                pass  # annotations of a name that is not there yet, since Python 3.14
        arguments = (_marshalled(code), function.__name__, len(cells))
        return main_function, arguments, (attributes, function.__dict__, cells), None, None, set_function


# In a pickle, these stand for members of the Main of the process that reads it.
def main_attribute(name: str) -> Any:
    raise AssertionError


def main_named(name: str, make: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    raise AssertionError


def main_function(code: bytes, name: str, cells: int) -> Any:
    raise AssertionError


def main_definitions(definitions: list[tuple[Any, ...]]) -> Any:
    raise AssertionError


_MEMBERS = {
    "main_attribute": "attribute",
    "main_named": "make_named",
    "main_function": "make_function",
    "main_definitions": "apply",
}


class Definitions:
    """Its pickle is that of Digests, and gives a Namespace that reads it the globals."""

    def __init__(self, definitions: list[Definition]) -> None:
        self.definitions = definitions

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return main_definitions, ([tuple(each) for each in self.definitions],)


# Objects of these types have no identity that matters, or go by their names.
_WITHOUT_IDENTITY = (
    frozenset({int, float, complex, bool, str, bytes, type(None), type(Ellipsis), type(NotImplemented)})
    | frozenset({types.FunctionType, types.BuiltinFunctionType, types.ModuleType, _CACHED})
)


class Definer:
    """Makes the definitions of the globals that pickles need. pickled: makes a pickle with a Reducer."""

    def __init__(self, main: Main, pickled: Callable[[Any, Reducer], bytes]) -> None:
        self._main = main
        self._pickled = pickled
        self._made: dict[str, Definition] = {}
        self._ranks: dict[str, int] = {}
        self._begun: set[str] = set()
        self._names: dict[int, str] | None = None
        self._awaited: set[str] = set()
        self._attributes: set[str] = set()
        self._files: set[str] = set()

    def reducer(self, read_once: bool) -> Reducer:
        return Reducer(
            self._main, define=self.name_of if self._main.sends_globals else None, read_once=read_once
        )

    def name_of(self, thing: Any) -> str | None:
        """The name of the global that this object is, which is defined then.

        None also if that global refers to itself here.
        """
        if self._names is None:
            self._names = {}
            for each, value in [*self._main.module.__dict__.items()]:
                if type(value) not in _WITHOUT_IDENTITY and not isinstance(value, type) and not each.startswith("__"):
                    self._names.setdefault(id(value), each)
        name = self._names.get(id(thing))
        if name is None or name in self._begun and name not in self._made:
            return None
        self._define(name)
        return name

    def definitions(self, reducer: Reducer) -> Definitions:
        """The globals that the pickle of the reducer needs, also those that these use.

        None in a worker: the program has them. Raises what their pickling raises.
        """
        if not self._main.sends_globals:
            return Definitions([])
        self._note(reducer)
        while self._awaited:
            self._define(self._awaited.pop())
        self._add_modules()
        # An object's __setstate__() or __hash__() may use what is only named in code.
        return Definitions(sorted(self._made.values(), key=lambda each: self._ranks[each.name]))

    def _note(self, reducer: Reducer) -> None:
        self._awaited |= reducer.used
        self._attributes |= reducer.attributes
        self._files |= reducer.files

    def _define(self, name: str) -> None:
        if name in self._begun:
            return
        self._begun.add(name)
        if name not in self._main.module.__dict__:
            # A built-in name, one that is not there yet, or not any more.
            self._made[name] = Definition(name, b"", b"")
            self._ranks[name] = 0
            return
        value = self._main.module.__dict__[name]
        own = Reducer(self._main, value, name, self.name_of)
        try:
            data = self._pickled(value, own)
        except Exception as error:
            error.add_note(
                f"The global {name} of the main script, of type {type(value).__qualname__}, which a function for the "
                "workers uses, can't be sent to them. Make it in an initializer, or in a module that they import."
            )
            raise
        # A part that is another object now is to be another one here, too.
        digest = hashlib.blake2b(data, digest_size=16)
        for part in sorted(own.parts):
            digest.update(self._made[part].digest)
        self._made[name] = Definition(name, digest.digest(), data, tuple(self._bases(value, name)))
        self._ranks[name] = _rank(value, own)
        self._note(own)

    def _bases(self, value: Any, name: str) -> Iterable[str]:
        if isinstance(value, type):
            for base in reversed((*value.__mro__[1:], type(value))):
                own = self._main.name_of(base)
                if own is not None and (top := own.partition(".")[0]) != name:
                    yield top

    def _add_modules(self) -> None:
        for name, definition in self._made.items():
            value = self._main.module.__dict__.get(name)
            if isinstance(value, types.ModuleType) and definition.digest:
                self._made[name] = definition._replace(submodules=tuple(_submodules(value.__name__, self._attributes)))
        if self._made and (sources := tuple(_sources(self._files))):
            first = next(iter(self._made))
            self._made[first] = self._made[first]._replace(sources=sources)


def _rank(value: Any, reducer: Reducer) -> int:
    if isinstance(value, types.FunctionType) or type(value) is _CACHED:
        return 1
    if isinstance(value, type):
        return 2
    return 3 if reducer.used or reducer.parts else 0


def _submodules(package: str, attributes: set[str]) -> Iterable[str]:
    """Those imported ones whose names the functions have: concurrent.futures of concurrent."""
    for name in [*sys.modules]:
        if name.startswith(package + ".") and attributes.issuperset(name[len(package) + 1 :].split(".")):
            yield name


def _sources(files: set[str]) -> Iterable[tuple[str, str]]:
    for file in sorted(files):
        if not os.path.isfile(file) and (lines := linecache.getlines(file)):
            yield file, "".join(lines)
