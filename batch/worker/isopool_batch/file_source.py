# SPDX-License-Identifier: BSD-3-Clause
"""Files: an item is the absolute path of a file, as a string; its ID is the path relative to the root."""

import glob
import hashlib
import os
from collections.abc import Iterator, Sequence

from isopool_batch.job import Ref
from isopool_batch.sources import no_items, not_regular, unreadable


class FileItems:
    def __init__(self, root: str, paths: Sequence[str]) -> None:
        self._root = root
        self._paths = paths

    def fallback_id(self, index: int) -> str:
        return self._paths[index]

    def read(self, index: int) -> tuple[str, str]:
        path = self._paths[index]
        return path, os.path.normpath(os.path.join(self._root, path))


class FileSource:
    """Of files, folders (searched recursively; hidden files skipped) and patterns, in this order, each sorted."""

    def __init__(self, paths: Sequence[str], root: str) -> None:
        self._paths = paths
        self._root = root
        self._found: list[str] | None = None

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
        files = self._files()
        for begin in range(0, len(files), rows):
            paths = files[begin : begin + rows]
            yield {"rows": len(paths), "paths": paths}

    def open(self, ref: Ref) -> FileItems:
        return FileItems(self._root, ref["paths"])

    def _files(self) -> list[str]:
        if self._found is None:
            prefix = os.path.join(self._root, "")
            # A file that two arguments name is one item.
            found: dict[str, None] = {}
            for path in self._paths:
                for each in sorted(_expanded(path)):
                    each = each[len(prefix) :] if each.startswith(prefix) else os.path.relpath(each, self._root)
                    if not each.isascii() and any("\ud800" <= character <= "\udfff" for character in each):
                        raise ValueError(f"{each!r}: the file's name is not UTF-8; rename it")
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


def _files_in(folder: str) -> Iterator[str]:
    folders = [folder]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    # A link to a folder is not followed: it may lead back here.
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif entry.is_file():
                        yield entry.path
        except OSError as error:
            raise unreadable(folder, error) from None
