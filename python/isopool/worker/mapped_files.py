# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of numpy.memmap as maps of the same file, for both sides: as joblib's own backends pass them.

Elsewhere an array of a file goes by value, as with concurrent.futures.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

_local = threading.local()


@contextlib.contextmanager
def by_name() -> Iterator[None]:
    """Pickles that this thread makes meanwhile name the files of such arrays."""
    _local.on = True
    try:
        yield
    finally:
        _local.on = False


def reduced(array: Any) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
    """The reduction of an array that is a part of a mapped file; None: it goes by value."""
    if not getattr(_local, "on", False):
        return None
    whole = array
    while type(whole.base) is type(array):
        whole = whole.base
    # "c": what the program has changed is not in the file.
    if whole.filename is None or whole.mode not in ("r", "r+", "w+"):
        return None
    address = array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    mode = "r" if whole.mode == "r" else "r+"
    size = whole.offset + whole.nbytes
    return opened, (str(whole.filename), mode, size, whole.offset + address, array.dtype, array.shape, array.strides)


def opened(file: str, mode: str, size: int, offset: int, dtype: Any, shape: Any, strides: Any) -> Any:
    import numpy

    made: Any = numpy.memmap(file, numpy.uint8, mode, shape=(size,))  # type: ignore[call-overload]
    array = numpy.ndarray(shape, dtype, made._mmap, offset, strides)
    # As an object of the class it is passed on in the same way.
    result: Any = array.view(numpy.memmap)
    result._mmap, result.filename, result.offset, result.mode = made._mmap, made.filename, offset, mode
    return result
