# SPDX-License-Identifier: BSD-3-Clause
"""Files with several items each, and the columns that their folders name, as Hive and Spark write them."""

import urllib.parse
from collections.abc import Sequence
from typing import Any

from isopool_batch import fingerprint
from isopool_batch.job import Input
from isopool_batch.sources import identified, labels, no_items

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


class Tables:
    """Raises ValueError if the files' folders do not name the same columns."""

    def __init__(self, input: Input) -> None:
        self.paths = input.paths
        self._labels = labels(input.paths)
        self._folders = input.partitions
        self.columns = _columns(input.paths, input.partitions)
        self._samples = fingerprint.Samples()

    def label(self, number: int) -> str:
        """A short name of the file, for IDs."""
        return self._labels[number]

    def names(self) -> list[str]:
        """Of the columns of folders."""
        return list(self.columns[0])

    def require(self, items: int) -> int:
        if items == 0:
            raise no_items(self.paths)
        return items

    def fingerprint(self) -> str:
        folders = self._folders or ("",) * len(self.paths)
        names = [f"{folder}/{label}" if folder else label for folder, label in zip(folders, self._labels, strict=True)]
        return fingerprint.of_samples(self.paths, names)

    def digest(self, number: int) -> str:
        """Of the file's size and parts of its contents, for a ref."""
        return fingerprint.of_samples([self.paths[number]], [""])

    def change(self, number: int, digest: str) -> str:
        """Why the file is not the one that had this digest; empty: it is. Cheap if nothing was written meanwhile."""
        return self._samples.change(self.paths[number], digest)

    def identified(self, row: Any, number: int, fallback: str, column: str) -> tuple[Any, Any]:
        """The row's ID, and the row with the columns of its folders, or its value of the column."""
        if more := self.columns[number]:
            if not isinstance(row, dict):
                raise TypeError(f"{fallback} is of type {type(row).__name__}: its folder names columns of a row")
            for name in more:
                if name in row:
                    raise ValueError(f"{fallback} has a column {name!r}, and so has its folder: a row can have one only")
            row = {**row, **more}
        return identified(row, fallback, column)


def _columns(paths: Sequence[str], folders: Sequence[str]) -> list[dict[str, Any]]:
    texts = [dict(_pairs(folder)) for folder in folders]
    for path, each in zip(paths, texts, strict=bool(folders)):
        if list(each) != list(texts[0]):
            raise ValueError(
                f"the folders of {path} name the columns {list(each)}, and those of {paths[0]} {list(texts[0])}: "
                "give them in jobs of their own"
            )
    # Numbers only if no text changes by it: 01 stays a text.
    for name in texts[0] if texts else ():
        if all(each[name] is None or _is_whole(each[name]) for each in texts):
            for each in texts:
                each[name] = None if each[name] is None else int(each[name])
    return texts or [{}] * len(paths)


def _pairs(folders: str) -> list[tuple[str, Any]]:
    pairs = []
    for part in folders.split("/"):
        name, equals, value = part.partition("=")
        if equals:
            pairs.append((urllib.parse.unquote(name), None if value == _NO_VALUE else urllib.parse.unquote(value)))
    return pairs


def _is_whole(text: str) -> bool:
    try:
        return str(int(text)) == text and -(2**63) <= int(text) < 2**63
    except ValueError:
        return False
