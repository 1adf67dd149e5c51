# SPDX-License-Identifier: BSD-3-Clause
"""What a plan becomes when inputs were added, changed or removed since: its next generation."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from isopool_batch.job import Ref, canonical

# So many names of inputs are told.
_MOST_EXAMPLES = 3


@dataclass
class Known:
    """A chunk of the plan. failed: the indexes in `ref` of its items that were set aside."""

    number: int
    done: bool
    ref: Ref
    failed: frozenset[int]

    @classmethod
    def parse(cls, values: dict[str, Any]) -> Self:
        return cls(values["number"], values["done"], values["ref"], frozenset(values["failed"]))


class Group:
    """The chunks of one ref: the one of the plan, and those of retries of its items. They go or stay together."""

    def __init__(self, chunks: Sequence[Known]) -> None:
        self.chunks = chunks
        self.ref = chunks[0].ref
        self.settled = all(each.done for each in chunks)
        # Each with the number of its chunk.
        self.failed = {index: each.number for each in chunks for index in each.failed}


def groups(known: Iterable[Known]) -> Iterator[Group]:
    found: dict[str, list[Known]] = {}
    for each in known:
        found.setdefault(canonical(each.ref), []).append(each)
    return map(Group, found.values())


@dataclass
class Growth:
    """What is to be done with the plan. Sources add the items that are left to their chunks."""

    drop: list[int] = field(default_factory=list)  # chunks whose results go
    forget: list[tuple[int, int]] = field(default_factory=list)  # items that are set aside no more: chunk, index
    refs: dict[int, Ref] = field(default_factory=dict)  # of chunks that stay, where they differ
    new: list[str] = field(default_factory=list)  # names of inputs
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    def drop_group(self, group: Group) -> None:
        self.drop += [each.number for each in group.chunks]

    def keep(self, group: Group, ref: Ref, without: Iterable[int] = ()) -> None:
        """The group stays, but for these items, which have failed."""
        self.forget += [(group.failed[index], index) for index in without]
        if ref != group.ref:
            self.refs.update({each.number: ref for each in group.chunks})

    def text(self) -> dict[str, Any]:
        """For the driver."""
        names = {"new": self.new, "changed": self.changed, "removed": self.removed}
        return {
            "drop": self.drop,
            "forget": self.forget,
            "refs": list(self.refs.items()),
            "inputs": {what: {"count": len(each), "examples": each[:_MOST_EXAMPLES]} for what, each in names.items()},
        }


def of_files(
    present: Sequence[str], stamp: Callable[[str], list[int]], known: Iterable[Known]
) -> tuple[Growth, list[str]]:
    """Of files that are items. Also returns those that are left: no chunk that stays has them.

    present: their paths relative to the root. A ref may name files that are not its own any more ("gone"), and files that
    were removed and whose results stay ("removed").
    """
    growth = Growth()
    stay: set[str] = set()
    there = set(present)
    seen: set[str] = set()
    for group in groups(known):
        ref = group.ref
        gone = set(ref.get("gone", ()))
        touched, redone = [], not group.settled
        for index, (path, planned) in enumerate(zip(ref["paths"], ref["stamps"], strict=True)):
            if index in gone:
                continue
            seen.add(path)
            if path not in there:
                growth.removed.append(path)
            elif stamp(path) != list(planned):
                growth.changed.append(path)
                redone = redone or index not in group.failed
            else:
                continue
            touched.append(index)
        if touched and redone:
            growth.drop_group(group)
            continue
        without = [index for index in touched if index in group.failed]
        gone.update(without)
        removed = [index for index in touched if index not in gone]
        ref = {key: value for key, value in ref.items() if key not in ("gone", "removed")}
        ref |= ({"gone": sorted(gone)} if gone else {}) | ({"removed": removed} if removed else {})
        growth.keep(group, ref, without)
        stay.update(path for index, path in enumerate(ref["paths"]) if index not in gone)
    growth.new += [path for path in present if path not in seen]
    return growth, [path for path in present if path not in stay]
