# SPDX-License-Identifier: BSD-3-Clause
"""Packages whose stored tensors are mapped instead of read."""

import contextlib
import difflib
import linecache
import struct
import zipfile
from collections.abc import Iterator

import _isopool
import torch
from torch.package import PackageImporter

_STORED = 0  # the ZIP method of records without compression


class MappedReader(torch._C.PyTorchFileReader):  # type: ignore[misc]
    """Returns stored tensors as slices of one private mapping of the file.

    As a subclass of PyTorchFileReader it works wherever torch expects one; torch is not patched.
    """

    def __init__(self, path: str, mapping: object) -> None:
        super().__init__(path)
        self._mapping = mapping
        self._sizes: dict[int, int] = {}
        if not hasattr(torch._C.PyTorchFileReader, "get_record_size"):  # torch before 2.12
            with zipfile.ZipFile(path) as archive:
                self._sizes = {record.header_offset: record.file_size for record in archive.infolist()}

    @contextlib.contextmanager
    def mapped(self, mapping: object) -> Iterator[None]:
        """Tensors that are loaded meanwhile lie in this mapping of the same file."""
        former, self._mapping = self._mapping, mapping
        try:
            yield
        finally:
            self._mapping = former

    def get_storage_from_record(self, name: str, numel: int, dtype: torch.dtype) -> torch.Tensor:
        size = self._size_of(name)
        offset = self.get_record_offset(name)
        if (
            numel > 0
            and numel * dtype.itemsize <= size
            and offset % dtype.itemsize == 0
            and self._is_stored(name)
        ):
            return _isopool.package_tensor(self._mapping, offset, numel, dtype)
        return super().get_storage_from_record(name, numel, dtype)

    def _size_of(self, name: str) -> int:
        if self._sizes:
            return self._sizes.get(self.get_record_header_offset(name), 0)
        return int(self.get_record_size(name))

    def _is_stored(self, name: str) -> bool:
        header = self.get_record_header_offset(name)
        signature, _, _, method = struct.unpack_from(
            "<IHHH", _isopool.package_header(self._mapping, header)
        )
        return signature == 0x04034B50 and method == _STORED


_open: set[str] = set()  # names of the importers of loaded packages


def open_package(path: str, mapping: object) -> PackageImporter:
    importer = PackageImporter(MappedReader(path, mapping))
    _open.add(importer.id())
    return importer


def check_pickle(importer: PackageImporter, package: str, module: str, file: str) -> None:
    """Raises FileNotFoundError, with the names of existing pickles, if the package lacks this one:
    torch would report that the whole file is damaged."""
    wanted = f"{module.replace('.', '/')}/{file}"
    reader = importer.zip_reader
    if reader.has_record(wanted):
        return
    names = [name for name in reader.get_all_records() if name.endswith(".pkl")]
    near = difflib.get_close_matches(wanted, names, n=5, cutoff=0.5)
    shown = ", ".join(near or sorted(names)[:5]) or "none"
    raise FileNotFoundError(
        f"the package {package} has no pickle {wanted}. "
        f"{'Names like it' if near else 'Pickles in it'}: {shown}"
    )


def forget_package(importer: PackageImporter) -> None:
    _open.discard(importer.id())


def forget_lines() -> None:
    """Removes the modules of dropped packages from Python's line cache, which would keep alive the
    importer, its file, and all objects loaded from it. To be called before each collection, because
    an object that outlives its package may import further modules.
    """
    for name in [name for name in linecache.cache if name.startswith("<torch_package_")]:
        if name[: name.find(">") + 1] not in _open:
            del linecache.cache[name]
