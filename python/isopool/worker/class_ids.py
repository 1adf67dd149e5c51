# SPDX-License-Identifier: BSD-3-Clause
"""The identity of a class that goes by value: by it a process finds the class that it made of an earlier pickle.

cloudpickle gives a class one identity for good, also in programs that have forked since or that read it from one file.
Their classes may differ, and a worker may serve them all. So an identity in a worker has the program's in front, and what
comes back is again the program's own. In a worker there is no program's: see the package's name there.
"""

import os
import uuid
from collections.abc import Callable
from typing import Any

from cloudpickle.cloudpickle import (  # type: ignore[import-untyped]
    _DYNAMIC_CLASS_TRACKER_BY_CLASS,
    _make_skeleton_class,
    _make_skeleton_enum,
)

_IN_WORKER = __package__ == "isopool_by_value"
_BETWEEN = "/"
_program = (0, "")


def _own() -> str:
    """A child that was forked is another program."""
    global _program
    process = os.getpid()
    if _program[0] != process:
        _program = (process, uuid.uuid4().hex + _BETWEEN)
    return _program[1]


def sent(thing: Any, reduced: Any) -> Any:
    """What a pickler is to write of a class that reduced() has described."""
    if _IN_WORKER or not isinstance(thing, type) or type(reduced) is not tuple:
        return reduced
    identity = _DYNAMIC_CLASS_TRACKER_BY_CLASS.get(thing)
    if identity is None:
        return reduced
    # Of a global of the main script, the arguments are within those of what gives it its name.
    def with_program(each: Any) -> Any:
        if each is identity:
            return _own() + each
        return tuple(map(with_program, each)) if type(each) is tuple else each

    make, arguments, *others = reduced
    return make, with_program(arguments), *others


def received(identity: Any) -> Any:
    """The identity in this process of one that came from another."""
    return identity.removeprefix(_own()) if isinstance(identity, str) and not _IN_WORKER else identity


def _reader(make: Callable[..., type]) -> Callable[..., type]:
    def made(*arguments: Any) -> type:
        *first, identity, extra = arguments
        return make(*first, received(identity), extra)

    return made


# What takes the place of cloudpickle's functions when a pickle is read.
READERS = {} if _IN_WORKER else {each.__name__: _reader(each) for each in (_make_skeleton_class, _make_skeleton_enum)}
