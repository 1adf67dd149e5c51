# SPDX-License-Identifier: BSD-3-Clause
"""Files with several items each, and the columns that their folders name, as Hive and Spark write them."""

import urllib.parse
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from isopool_batch import fingerprint
from isopool_batch.growth import Group, Growth, Known, groups
from isopool_batch.job import Input, Ref
from isopool_batch.sources import identified, labels, no_items, stamp_of

# In place of a file's place among the paths.
_REMOVED = -1
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


class Tables:
    """Raises ValueError if the files' folders do not name the same columns."""

    def __init__(self, input: Input) -> None:
        self.paths = input.paths
        self._labels = labels(input.paths)
        self._folders = input.partitions
        self.columns = _columns(input.paths, input.partitions)
        self._samples = fingerprint.Samples()
        self._left: list[int] | None = None

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

    def identity(self, number: int) -> Ref:
        """Of the file, for its refs: its place among the paths, a digest of its size and parts of its contents, its time."""
        path = self.paths[number]
        stamp = stamp_of(path)
        return {
            "file": number,
            "label": self._labels[number],
            "digest": fingerprint.of_samples([path], [""]),
            "time": stamp[2] if stamp else 0,
        }

    def change(self, ref: Ref) -> str:
        """Why the file is not the one that was planned; empty: it is. Cheap if nothing was written meanwhile."""
        return self._samples.change(self.path(ref), ref["digest"])

    def path(self, ref: Ref) -> str:
        if ref["file"] == _REMOVED:
            raise ValueError(f"{ref['path']} was removed from the inputs")
        return self.paths[ref["file"]]

    def left(self) -> Iterable[int]:
        """The files whose chunks are to be planned, by their places: all, or those that grow() has found."""
        return range(len(self.paths)) if self._left is None else self._left

    def grow(self, before: Input, known: list[Known], has_bytes: Callable[[Ref], bool] | None = None) -> Growth:
        """As Source.grow(), by files: one that has changed is done anew as a whole.

        has_bytes: whether a file has the bytes of a ref still. Without it a file that was written is another one, because
        digests are of parts of it only.
        """
        growth = Growth()
        earlier = Tables(before)
        places = {path: number for number, path in enumerate(self.paths)}
        files: dict[str, list[Group]] = {}
        for group in groups(known):
            files.setdefault(group.ref.get("path") or earlier.paths[group.ref["file"]], []).append(group)
        stay = set()
        names = set(self._labels)
        for path, its in files.items():
            number = places.get(path)
            if number is None and its[0].ref["label"] in names:
                # Another file has its name now, so its items' IDs.
                for group in its:
                    growth.drop_group(group)
                continue
            if number is None:
                growth.removed.append(its[0].ref["label"])
                for group in its:
                    if group.settled:
                        growth.keep(group, {**group.ref, "file": _REMOVED, "path": path}, group.failed)
                    else:
                        growth.drop_group(group)
                continue
            refs = [{key: value for key, value in group.ref.items() if key != "path"} | {"file": number} for group in its]
            if self._is_same(number, refs, has_bytes):
                self._require_agreement(number, its[0].ref, earlier)
                stay.add(path)
                for group, ref in zip(its, refs, strict=True):
                    growth.keep(group, ref)
            else:
                growth.changed.append(refs[0]["label"])
                for group in its:
                    growth.drop_group(group)
        earlier_paths = {*files, *earlier.paths}
        growth.new += [label for path, label in zip(self.paths, self._labels, strict=True) if path not in earlier_paths]
        self._left = [number for path, number in places.items() if path not in stay]
        return growth

    def _is_same(self, number: int, refs: Sequence[Ref], has_bytes: Callable[[Ref], bool] | None) -> bool:
        now, ref = self.identity(number), refs[0]
        if now["digest"] != ref["digest"]:
            return False
        return now["time"] == ref["time"] or (has_bytes is not None and all(map(has_bytes, refs)))

    def _require_agreement(self, number: int, ref: Ref, earlier: "Tables") -> None:
        """Rows that have their results would be others now, without a change of their file."""
        path, label = self.paths[number], self._labels[number]
        if label != ref["label"]:
            raise ValueError(
                f"IDs of {path} would begin with {label}, and those of the results begin with {ref['label']}, because of "
                "the other inputs: name another output folder"
            )
        if ref["file"] != _REMOVED and self.columns[number] != earlier.columns[ref["file"]]:
            raise ValueError(
                f"the columns of the folders of {path} would be {self.columns[number]}, and were "
                f"{earlier.columns[ref['file']]}: name another output folder"
            )

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


class TableItems:
    """What Items of the sources of tables have in common."""

    def __init__(self, tables: Tables, ref: Ref, column: str) -> None:
        self._tables = tables
        self._ref = ref
        self._column = column

    def fallback_id(self, index: int) -> str:
        return f"{self._ref['label']}:{self._ref['row'] + index}"

    def change(self) -> str:
        return self._tables.change(self._ref)

    def _identified(self, row: Any, fallback: str) -> tuple[Any, Any]:
        return self._tables.identified(row, self._ref["file"], fallback, self._column)


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
