# SPDX-License-Identifier: BSD-3-Clause
"""Regular files for reading, decompressed by the ending of their names."""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, cast

from isopool_batch import packages
from isopool_batch.sources import opened

COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz")
# What reading may raise if a compressed file is cut off or damaged.
DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError)

_BUFFER = 1 << 20


def without_compression(path: str) -> str:
    """The path in lower case, without the ending that tells a compression."""
    name = path.lower()
    for ending in COMPRESSIONS:
        if name.endswith(ending):
            return name.removesuffix(ending)
    return name


def is_compressed(path: str) -> bool:
    return path.lower().endswith(COMPRESSIONS)


def contents(path: str) -> BinaryIO:
    """The contents. Of a compressed file, a seek to an earlier place reads it again from its begin."""
    file = opened(path, _BUFFER)
    name = path.lower()
    if is_compressed(path) and not file.peek(1):  # type: ignore[attr-defined]
        raise EOFError("it is empty, and a compressed file is not")
    if name.endswith(".zst"):
        return cast(BinaryIO, io.BufferedReader(_Zstandard(path), _BUFFER))
    if name.endswith(".gz"):
        return cast(BinaryIO, gzip.GzipFile(fileobj=file, mode="rb"))
    if name.endswith(".bz2"):
        return cast(BinaryIO, io.BufferedReader(_Streams(path, bz2.BZ2Decompressor), _BUFFER))
    if name.endswith(".xz"):
        return cast(BinaryIO, io.BufferedReader(_Streams(path, lzma.LZMADecompressor), _BUFFER))
    return file


class _Decompressed(io.RawIOBase):
    """Reads forward. Of a place behind, it reads again from the begin."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._place = 0
        self._begin()

    def _begin(self) -> None:
        raise NotImplementedError

    def _next(self, most: int) -> bytes:
        """Some bytes; none at the end. Raises one of DAMAGED."""
        raise NotImplementedError

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def readinto(self, buffer: Any) -> int:
        with memoryview(buffer) as view:
            read = self._next(len(view))
            view[: len(read)] = read
        self._place += len(read)
        return len(read)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_CUR:
            offset += self._place
        elif whence != io.SEEK_SET:
            raise io.UnsupportedOperation("the size of a compressed file is not known")
        if offset < self._place:
            self._begin()
            self._place = 0
        while self._place < offset and self.read(min(offset - self._place, _BUFFER)):
            pass
        return self._place


class _Zstandard(_Decompressed):
    def _begin(self) -> None:
        pyarrow = packages.need("pyarrow", "a file with Zstandard compression")
        # The stream closes its file.
        self._stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(opened(self._path), "r"), "zstd")

    def _next(self, most: int) -> bytes:
        return self._stream.read(most)  # type: ignore[no-any-return]


class _Streams(_Decompressed):
    """Of xz or bzip2. The files of the standard library take what they can't read behind a stream for the end."""

    def __init__(self, path: str, make: Callable[[], Any]) -> None:
        self._make = make
        super().__init__(path)

    def _begin(self) -> None:
        self._file = opened(self._path, _BUFFER)
        self._rest = b""
        self._stream: Any = self._make()

    def _next(self, most: int) -> bytes:
        while True:
            if self._stream is None:
                # Zeros may lie between the streams of xz.
                self._rest = (self._rest or self._file.read(_BUFFER)).lstrip(b"\0")
                if not self._rest and not self._file.peek(1):  # type: ignore[attr-defined]
                    return b""
                if not self._rest:
                    continue
                self._stream = self._make()
            taken = b""
            if self._stream.needs_input:
                taken, self._rest = self._rest or self._file.read(_BUFFER), b""
                if not taken:
                    raise EOFError("it is cut off")
            found: bytes = self._stream.decompress(taken, most)
            if self._stream.eof:
                self._rest, self._stream = self._stream.unused_data, None
            if found:
                return found
