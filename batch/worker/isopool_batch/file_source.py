# SPDX-License-Identifier: BSD-3-Clause
"""Files: an item is the absolute path of a file, as a string; its ID is the path relative to the root."""

import glob
import hashlib
import os
from collections.abc import Iterator, Sequence

from isopool_batch import growth
from isopool_batch.job import Input, Ref
from isopool_batch.sources import changed, is_utf8, no_items, not_regular, stamp_of, unreadable
from isopool_batch.streams import without_compression


_TABLES = (".parquet", ".pq", ".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".tar")


class FileItems:
    def __init__(self, root: str, ref: Ref) -> None:
        self._root = root
        self._paths: Sequence[str] = ref["paths"]
        self._planned: Sequence[Sequence[int]] = ref["stamps"]
        # See growth.of_files().
        self._absent = {*ref.get("gone", ()), *ref.get("removed", ())}

    def fallback_id(self, index: int) -> str:
        return self._paths[index]

    def read(self, index: int) -> tuple[str, str]:
        return self._paths[index], self._path(index)

    def change(self) -> str:
        for index, planned in enumerate(self._planned):
            if index not in self._absent and _size_and_time(self._path(index)) != list(planned):
                return changed(self._path(index))
        return ""

    def _path(self, index: int) -> str:
        return os.path.normpath(os.path.join(self._root, self._paths[index]))


def _size_and_time(path: str) -> list[int]:
    stamp = stamp_of(path)
    return [] if stamp is None else [stamp[1], stamp[2]]


class FileSource:
    """Of files, folders (searched recursively; hidden files skipped) and patterns, in this order, each sorted.

    A ref has the files ("paths"), and the size and time of each ("stamps").
    """

    def __init__(self, paths: Sequence[str], root: str, tables: bool) -> None:
        self._paths = paths
        self._root = root
        self._tables = tables  # whether they are items like other files
        self._found: list[str] | None = None
        self._left: list[str] | None = None  # of these the plan has none; None: there is no plan

    def count(self) -> int:
        return len(self._files())

    def fingerprint(self) -> str:
        hashed = hashlib.sha256()
        for path in self._files():
            absolute = os.path.join(self._root, path)
            try:
                status = os.stat(absolute)
            except OSError as error:
                raise unreadable(absolute, error) from None
            hashed.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
        return hashed.hexdigest()

    def refs(self, rows: int) -> Iterator[Ref]:
        files = self._files() if self._left is None else self._left
        for begin in range(0, len(files), rows):
            paths = files[begin : begin + rows]
            stamps = [_size_and_time(os.path.join(self._root, path)) for path in paths]
            yield {"rows": len(paths), "paths": paths, "stamps": stamps}

    def grow(self, before: Input, known: list[growth.Known]) -> growth.Growth:
        if os.path.normpath(before.root) != self._root:
            raise ValueError(
                f"IDs would be relative to {self._root}, and those of the results are to {os.path.normpath(before.root)}: "
                "give the same inputs as before, or another output folder"
            )
        grown, self._left = growth.of_files(
            self._files(), lambda path: _size_and_time(os.path.join(self._root, path)), known
        )
        return grown

    def open(self, ref: Ref) -> FileItems:
        return FileItems(self._root, ref)

    def _files(self) -> list[str]:
        if self._found is None:
            prefix = os.path.join(self._root, "")
            # A file that two arguments name is one item.
            found: dict[str, None] = {}
            for path in self._paths:
                for each in sorted(_expanded(path)):
                    each = each[len(prefix) :] if each.startswith(prefix) else os.path.relpath(each, self._root)
                    if not is_utf8(each):
                        raise ValueError(f"{each!r}: the file's name is not UTF-8; rename it")
                    if not self._tables and without_compression(each).endswith(_TABLES):
                        raise ValueError(
                            f"{each} is a table beside other files: name the tables, or give --files to pass their paths"
                        )
                    found[each] = None
            if not found:
                raise no_items(self._paths)
            self._found = list(found)
        return self._found


def _expanded(path: str) -> Iterator[str]:
    path = os.path.normpath(path)
    if os.path.isdir(path):
        yield from _files_in(path)
    elif os.path.isfile(path):
        yield path
    elif os.path.exists(path):
        raise not_regular(path)
    elif glob.has_magic(path):
        matches = glob.glob(path, recursive=True)
        if not matches:
            raise ValueError(f"{path} matches no files")
        for match in matches:
            if os.path.isdir(match):
                yield from _files_in(match)
            elif os.path.isfile(match):
                yield match
    else:
        raise ValueError(f"{path} does not exist")


def _files_in(top: str) -> Iterator[str]:
    """Follows links. Raises ValueError for a link to nothing or to a folder around it, and for what is no file."""
    # Each with the folders around it.
    folders: list[tuple[str, frozenset[tuple[int, int]]]] = [(top, frozenset())]
    while folders:
        folder, around = folders.pop()
        try:
            status = os.stat(folder)
            place = (status.st_dev, status.st_ino)
            if place in around:
                raise ValueError(f"{folder} is a link to a folder that it lies in: remove it, or name other folders")
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir():
                        folders.append((entry.path, around | {place}))
                    elif entry.is_file():
                        yield entry.path
                    elif entry.is_symlink() and not os.path.exists(entry.path):
                        raise ValueError(f"{entry.path} is a link to a file that does not exist: remove it")
                    else:
                        raise not_regular(entry.path)
        except OSError as error:
            raise unreadable(folder, error) from None
