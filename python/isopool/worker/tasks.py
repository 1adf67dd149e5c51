# SPDX-License-Identifier: BSD-3-Clause
"""What an Executor's workers run: functions by value, with arguments and results as payloads.

An answer is (kind, *parts). Of kind VALUE: the result. Of RAISED and INITIALIZER_RAISED: a Raised. Of UNREADABLE: a
Raised, too; the function or its arguments could not be unpickled. Of UNKNOWN_FUNCTION: nothing; the caller sends the
call again, together with the function.
"""

import collections
import functools
import multiprocessing.process
import os
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import torch

from . import payload
from .log_settings import adopt
from .main_script import Digests, Namespace

VALUE, RAISED, UNKNOWN_FUNCTION, UNREADABLE, INITIALIZER_RAISED = range(5)

# Functions that a worker keeps, the least recently used of which is dropped first, and the bytes of their pickles.
MOST_FUNCTIONS = 1000
MOST_FUNCTION_BYTES = 64 << 20

Answer = tuple[Any, ...]

_T = TypeVar("_T")


class Raised(NamedTuple):
    """An exception of a worker. pickled is empty if the exception can't be pickled."""

    python_type: str
    message: str
    traceback: str
    process_id: int
    pickled: bytes


class RecentFunctions(Generic[_T]):
    """What is known of the functions that were used last: of MOST_FUNCTIONS, and not more than MOST_FUNCTION_BYTES.

    One larger function is known until the next one is used. A worker has the functions in it; the Executor, with the
    same calls, how often each one was sent.
    """

    def __init__(self) -> None:
        self._known: collections.OrderedDict[str, tuple[_T, int]] = collections.OrderedDict()
        self._bytes = 0

    def use(self, key: str) -> _T | None:
        if key not in self._known:
            return None
        self._known.move_to_end(key)
        return self._known[key][0]

    def keep(self, key: str, value: _T, size: int) -> None:
        self._bytes += size - self._known.pop(key, (None, 0))[1]
        self._known[key] = (value, size)
        while len(self._known) > MOST_FUNCTIONS or (self._bytes > MOST_FUNCTION_BYTES and len(self._known) > 1):
            self._bytes -= self._known.popitem(last=False)[1][1]


def _with_filename(code: types.CodeType, filename: str) -> types.CodeType:
    """The code as cloudpickle makes it, with the name of its file."""
    constants = tuple(
        _with_filename(each, filename) if isinstance(each, types.CodeType) else each for each in code.co_consts
    )
    return code.replace(co_filename=filename, co_consts=constants)


_THIS_FILE = _with_filename.__code__.co_filename


def _tensor_of(buffer: Any, arguments: tuple[str | torch.Tensor, ...] = ()) -> torch.Tensor:
    """A tensor of the buffer. One in the memory of an argument shares its storage: such a result is not copied."""
    # torch warns of memory that it could not write to; it does not write to it here.
    view = memoryview(buffer)
    if view.nbytes == 0:
        return torch.empty(0, dtype=torch.uint8)
    tensor = torch.frombuffer(bytearray(view) if view.readonly else view, dtype=torch.uint8)
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            storage = argument.untyped_storage()
            offset = tensor.data_ptr() - storage.data_ptr()
            if 0 <= offset <= storage.nbytes() - tensor.numel():
                return tensor.new_empty(0).set_(storage, offset, tensor.shape)  # type: ignore[call-overload,no-any-return]
    return tensor


def _explain(error: BaseException) -> None:
    """Adds what isopool knows of the error: what the sandbox forbade, the limit of memory, a missing module."""
    worker = sys.modules.get("_isopool")
    try:
        if worker is not None and (lines := worker.explain(error)):
            error.add_note(lines)
    except BaseException:
        pass  # of a class that takes no notes


def _leave_after_call() -> None:
    worker = sys.modules.get("_isopool")
    if worker is not None:
        worker.leave_after_call()


def _raised(kind: int, error: BaseException, main: Namespace) -> Answer:
    own = error.__traceback__
    while own is not None and own.tb_next is not None and own.tb_frame.f_code.co_filename == _THIS_FILE:
        own = own.tb_next
    error = error.with_traceback(own)
    _explain(error)
    text = "".join(traceback.format_exception(error))
    try:
        pickled = payload.whole_dumps(error, main)
    except BaseException:
        pickled = b""
    try:
        message = str(error)
    except BaseException:
        message = "<its text can't be made>"
    raised = Raised(type(error).__qualname__, message, text, os.getpid(), pickled)
    return (kind, *payload.dumps(tuple(raised), _tensor_of))


def _call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


def _call_chunk(function: Callable[..., Any], chunk: tuple[tuple[Any, ...], ...], _: dict[str, Any]) -> list[Any]:
    return [function(*args) for args in chunk]


def call_each(function: Callable[..., Any], chunk: tuple[tuple[Any, ...], ...]) -> list[Any]:
    return [function(*args) for args in chunk]


# An object of these types can't change.
CONSTANT = frozenset({int, float, complex, bool, str, bytes, type(None), type(Ellipsis)})


def _keeps_no_state(function: Any, depth: int = 0) -> bool:
    """Whether no call can leave anything in the function that is not in its module, too: no object and no closure."""
    if depth > 3:
        return False
    if type(function) is types.FunctionType:
        try:
            cells = [cell.cell_contents for cell in function.__closure__ or ()]
        except ValueError:  # an empty one
            return False
        return all(type(each) in CONSTANT or _keeps_no_state(each, depth + 1) for each in cells)
    if type(function) is types.BuiltinFunctionType:
        own = function.__self__
        return own is None or type(own) is types.ModuleType or type(own) in CONSTANT
    if type(function) is functools.partial:
        values = (*function.args, *function.keywords.values())
        return all(type(each) in CONSTANT for each in values) and _keeps_no_state(function.func, depth + 1)
    return isinstance(function, type)


class _Known(NamedTuple):
    """A function, and what tells whether the globals of the main script are as it needs them.

    pickled: of one that keeps state, as the method of an object, which is made anew for each call.
    """

    function: Callable[..., Any] | None
    digests: Digests
    pickled: bytes | None = None


class _Surroundings:
    """What a call finds of the program in the interpreter, which may serve other programs, too, while this is entered.

    The proxies of a multiprocessing.Manager connect with the key that they find when they are unpickled.
    """

    def __init__(self, authkey: bytes, main: types.ModuleType, arguments: list[str]) -> None:
        self._of_program = authkey, main, arguments
        self._own: tuple[bytes, types.ModuleType, list[str]]

    def __enter__(self) -> None:
        process = multiprocessing.process.current_process()
        self._own = process.authkey, sys.modules["__main__"], sys.argv
        process.authkey, sys.modules["__main__"], sys.argv = self._of_program

    def __exit__(self, *_: object) -> None:
        process = multiprocessing.process.current_process()
        process.authkey, sys.modules["__main__"], sys.argv = self._own


def _search_as(paths: list[str], modules: dict[str, str]) -> None:
    """Has this worker find the modules of the program where the program finds them.

    A module of the program's folder may have the name of an installed one, which may be imported here already. One with
    a library of C stays: such a library can't be loaded twice.
    """
    ranks = {path: rank for rank, path in reversed([*enumerate(paths)])}
    # It has all of them.
    sys.path[:] = sorted(sys.path, key=lambda each: ranks.get(os.path.realpath(each), len(paths)))
    for name, file in modules.items():
        names = [each for each in sys.modules if each == name or each.startswith(name + ".")]
        files = {each: getattr(sys.modules[each], "__file__", None) or "" for each in names}
        if names and os.path.realpath(files[name]) != file and not any(each.endswith(".so") for each in files.values()):
            for each in names:
                del sys.modules[each]


class TaskRunner:
    """Serves the calls of one Executor in one worker. Its pickle is the initializer: each worker runs it once.

    arguments: the program's sys.argv. paths, modules: see search_order() and own_modules() of isopool.program.
    most_tasks: after so many the worker exits, instead of running another one; 0: no limit. authkey: multiprocessing's
    key of the Executor's process, in hexadecimal.
    """

    def __init__(
        self,
        arguments: list[str],
        paths: list[str],
        modules: dict[str, str],
        most_tasks: int,
        authkey: str,
        *initializer: str | torch.Tensor,
    ) -> None:
        self.isopool_model_name = "isopool.Executor"
        self._arguments = list(arguments)
        self._search = list(paths), dict(modules)
        self._most_tasks = most_tasks
        self._authkey = bytes.fromhex(authkey)
        self._initializer = payload.owned(initializer)
        self._prepare()

    def _prepare(self) -> None:
        self._initialized = not self._initializer
        self._tasks = 0
        self._functions: RecentFunctions[_Known] = RecentFunctions()
        self._main = Namespace(payload.read_global)
        self._surroundings = _Surroundings(self._authkey, self._main.module, self._arguments)
        _search_as(*self._search)

    def __getstate__(self) -> tuple[Any, ...]:
        return self._arguments, self._search, self._most_tasks, self._authkey, self._initializer

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._arguments, self._search, self._most_tasks, self._authkey, self._initializer = state
        self._prepare()

    def run(self, key: str, function: torch.Tensor | None, *arguments: str | torch.Tensor) -> Answer:
        """Calls the function of this key. arguments: the payload of (args, kwargs)."""
        return self._answer(key, function, arguments, _call)

    def run_chunk(self, key: str, function: torch.Tensor | None, *arguments: str | torch.Tensor) -> Answer:
        """Calls the function for each tuple of arguments. arguments: the payload of (tuples, {})."""
        return self._answer(key, function, arguments, _call_chunk)

    def _answer(
        self,
        key: str,
        pickled: torch.Tensor | None,
        arguments: tuple[str | torch.Tensor, ...],
        call: Callable[..., Any],
    ) -> Answer:
        process = os.getpid()
        with self._surroundings:
            kind, outcome = self._outcome(key, pickled, arguments, call)
            if isinstance(outcome, BaseException) and os.getpid() != process:
                raise outcome  # ends the process that the call has forked
            # Here, where no exception is handled: Python goes through all the exceptions that led to that one whenever
            # another one is raised meanwhile.
            return (kind, *outcome) if isinstance(outcome, list) else _raised(kind, outcome, self._main)

    def _outcome(
        self,
        key: str,
        pickled: torch.Tensor | None,
        arguments: tuple[str | torch.Tensor, ...],
        call: Callable[..., Any],
    ) -> tuple[int, list[Any] | BaseException]:
        """The kind of the answer with its other parts, or with the exception that it is to have."""
        main = self._main
        if not self._initialized:
            try:
                log_settings, function, args = payload.loads(self._initializer, main)
                if log_settings is not None:
                    adopt(log_settings)
                if function is not None:
                    function(*args)
            except BaseException as error:
                return INITIALIZER_RAISED, error
            self._initialized = True
        try:
            known = self._function(key, pickled)
            if known is None:
                return UNKNOWN_FUNCTION, []
            function = known.function if known.pickled is None else self._made(known.pickled)[0]
            args, kwargs = payload.loads(arguments, main)
        except BaseException as error:
            return UNREADABLE, error
        self._tasks += 1
        if self._tasks == self._most_tasks:
            _leave_after_call()
        try:
            result = call(function, args, kwargs)
        except BaseException as error:
            return RAISED, error
        finally:
            del args, kwargs
        try:
            return VALUE, [*payload.dumps(result, lambda buffer: _tensor_of(buffer, arguments), main)]
        except BaseException as error:
            name = getattr(function, "__qualname__", repr(function))
            error.add_note(f"The result of {name}, of type {type(result).__qualname__}, could not be pickled.")
            return RAISED, error

    def _function(self, key: str, pickled: torch.Tensor | None) -> _Known | None:
        known = self._functions.use(key)
        if known is not None and self._main.has(known.digests):
            return known
        if pickled is None:
            return None
        memory = payload.memory_of(pickled)
        made, digests = self._made(memory)
        known = _Known(made, digests) if _keeps_no_state(made) else _Known(None, digests, bytes(memory))
        self._functions.keep(key, known, pickled.numel())
        return known

    def _made(self, pickled: Any) -> tuple[Callable[..., Any], Digests]:
        (made, filename), digests = payload.whole_loads(pickled, self._main)
        if isinstance(made, types.FunctionType) and made.__code__.co_filename != filename:
            made.__code__ = _with_filename(made.__code__, filename)
        return made, digests
