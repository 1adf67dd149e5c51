# SPDX-License-Identifier: BSD-3-Clause
"""Tar files as WebDataset writes them: an item is the files whose names are equal up to the first dot, as bytes."""

import os
import tarfile
from collections.abc import Iterator
from typing import Any, BinaryIO

from isopool_batch.growth import Growth, Known
from isopool_batch.job import Input, Ref
from isopool_batch.sources import opened, unreadable
from isopool_batch.tables import TableItems, Tables

_BLOCK = 512
_REST = 1 << 20

# The members of one item, by the ends of their names.
Members = dict[str, tarfile.TarInfo]


class TarItems(TableItems):
    def __init__(self, tables: Tables, ref: Ref, column: str) -> None:
        super().__init__(tables, ref, column)
        self._tar: tarfile.TarFile | None = None
        self._groups: Iterator[tuple[str, Members]] = iter(())
        self._found: list[tuple[str, Members]] = []

    def read(self, index: int) -> tuple[Any, Any]:
        key, members = self._group(index)
        assert self._tar is not None
        item: dict[str, Any] = {"__key__": key}
        for ending, member in members.items():
            file = self._tar.extractfile(member)
            assert file is not None
            item[ending] = file.read()
            if len(item[ending]) != member.size:
                raise ValueError(f"{member.name} is cut off")
        return key, self._identified(item, key)[1]

    def _group(self, index: int) -> tuple[str, Members]:
        if self._tar is None:
            path = self._tables.path(self._ref)
            file = opened(path)
            file.seek(self._ref["offset"])
            self._tar = tarfile.TarFile(fileobj=file)
            self._groups = _groups(self._tar, path)
        while len(self._found) <= index:
            group = next(self._groups, None)
            if group is None:
                raise ValueError(f"{self.fallback_id(index)} is missing: the file has changed since it was planned")
            self._found.append(group)
        return self._found[index]


class TarSource:
    """A ref has Tables.identity() of its file and the offset of the first item."""

    def __init__(self, tables: Tables, column: str) -> None:
        self._tables = tables
        self._column = column

    def count(self) -> int:
        return self._tables.require(sum(1 for path in self._tables.paths for _ in _places(path)))

    def fingerprint(self) -> str:
        return self._tables.fingerprint()

    def refs(self, rows: int) -> Iterator[Ref]:
        for number in self._tables.left():
            path = self._tables.paths[number]
            identity = self._tables.identity(number)
            row = taken = begin = 0
            for place in _places(path):
                if taken == rows:
                    yield {"rows": taken, "row": row, "offset": begin, **identity}
                    row += taken
                    taken = 0
                if taken == 0:
                    begin = place
                taken += 1
            if taken > 0:
                yield {"rows": taken, "row": row, "offset": begin, **identity}

    def grow(self, before: Input, known: list[Known]) -> Growth:
        return self._tables.grow(before, known)

    def open(self, ref: Ref) -> TarItems:
        return TarItems(self._tables, ref, self._column)


def _places(path: str) -> Iterator[int]:
    """The offset of each item. Raises ValueError at the end if the file is cut off or damaged."""
    try:
        with opened(path) as file:
            try:
                tar = tarfile.TarFile(fileobj=file)
                seen: set[str] = set()
                for key, members in _groups(tar, path):
                    if key in seen:
                        raise ValueError(
                            f"{path} has members of {key} at two places, which would be two items: write them one after the "
                            "other (tar --sort=name)"
                        )
                    seen.add(key)
                    yield next(iter(members.values())).offset
                _require_end(file, tar.offset, path)  # type: ignore[attr-defined]
            except tarfile.TarError as error:
                raise ValueError(f"{path} is not a tar file that can be read: {error}") from None
    except OSError as error:
        raise unreadable(path, error) from None


def _groups(tar: tarfile.TarFile, path: str) -> Iterator[tuple[str, Members]]:
    """Each item's key and members. Folders and names that begin with a dot do not count."""
    key, members = "", Members()
    while (member := tar.next()) is not None:
        tar.members.clear()  # type: ignore[attr-defined]  # it would keep them all
        folder, name = os.path.split(member.name)
        if member.isdir() or name.startswith("."):
            continue
        if not member.isfile():
            raise ValueError(f"{path}: {member.name} is neither a file nor a folder; only these can be read")
        stem, _, ending = name.partition(".")
        stem = os.path.join(folder, stem)
        if members and stem != key:
            yield key, members
            members = Members()
        key = stem
        if ending in members or ending == "__key__":
            raise ValueError(f"{path} has two members {member.name}: an item can have one of them only")
        members[ending] = member
    if members:
        yield key, members


def _require_end(file: BinaryIO, place: int, path: str) -> None:
    """tarfile takes a damaged header for the end."""
    file.seek(place)
    if file.read(_BLOCK) != bytes(_BLOCK):
        raise ValueError(f"{path} is cut off or damaged at byte {place}: its end mark is not there")
    while block := file.read(_REST):
        if block.strip(b"\0"):
            raise ValueError(f"{path} has more behind its end mark, as if files were joined: give them one by one")
