# SPDX-License-Identifier: BSD-3-Clause
"""Regular files for reading, decompressed by the ending of their names."""

import bz2
import gzip
import io
import lzma
import zlib
from typing import Any, BinaryIO, cast

from isopool_batch import packages
from isopool_batch.sources import opened

COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz")
# What reading may raise if a compressed file is cut off or damaged.
DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError)

_BUFFER = 1 << 20


def without_compression(path: str) -> str:
    for ending in COMPRESSIONS:
        if path.endswith(ending):
            return path.removesuffix(ending)
    return path


def is_compressed(path: str) -> bool:
    return path.endswith(COMPRESSIONS)


def contents(path: str) -> BinaryIO:
    """The contents. Of a compressed file, a seek to an earlier place reads it again from its begin."""
    file = opened(path, _BUFFER)
    if is_compressed(path) and not file.peek(1):  # type: ignore[attr-defined]
        raise EOFError("it is empty, and a compressed file is not")
    if path.endswith(".zst"):
        return cast(BinaryIO, io.BufferedReader(_Zstandard(path), _BUFFER))
    if path.endswith(".gz"):
        return cast(BinaryIO, gzip.GzipFile(fileobj=file, mode="rb"))
    if path.endswith(".bz2"):
        return bz2.BZ2File(file)
    if path.endswith(".xz"):
        return lzma.LZMAFile(file)
    return file


class _Zstandard(io.RawIOBase):
    def __init__(self, path: str) -> None:
        self._path = path
        self._begin()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def readinto(self, buffer: Any) -> int:
        with memoryview(buffer) as view:
            read = self._stream.read(len(view))
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
        while self._place < offset and self.read(min(offset - self._place, _BUFFER)):
            pass
        return self._place

    def _begin(self) -> None:
        pyarrow = packages.need("pyarrow", "a file with Zstandard compression")
        # The stream closes its file.
        self._stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(opened(self._path), "r"), "zstd")
        self._place = 0
