# SPDX-License-Identifier: BSD-3-Clause
"""Random results of a model: rows whose values have random types, nested, with gaps, some of which do not go together."""

import datetime
import decimal
import random
from collections.abc import Callable
from typing import Any

import numpy

Make = Callable[[], Any]


class RandomRows:
    """Rows of one job, from a seed: most values of a column go together, some do not."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._columns = {f"c{n}": self._of_kinds() for n in range(self._random.randint(1, 5))}

    def rows(self, count: int, first: int) -> list[dict[str, Any]]:
        rows = []
        for number in range(first, first + count):
            names = list(self._columns)
            if self._random.random() < 0.3:
                self._random.shuffle(names)
            present = [name for name in names if self._random.random() < 0.9]
            rows.append({"id": number} | {name: self._columns[name]() for name in present})
        return rows

    def _of_kinds(self) -> Make:
        """Values of one kind; of related ones; or, now and then, of any."""
        kinds = [self._kind(2)] + [self._kind(2) for _ in range(self._random.choice([0, 0, 0, 1]))]
        gaps = self._random.choice([0.0, 0.2, 0.8])

        def make() -> Any:
            if self._random.random() < gaps:
                return None
            if len(kinds) > 1 and self._random.random() < 0.1:
                return kinds[1]()
            return kinds[0]()

        return make

    def _kind(self, depth: int) -> Make:
        chosen = self._random
        simple: list[Make] = [
            lambda: chosen.random() < 0.5,
            lambda: chosen.randint(-3, 3),
            lambda: chosen.choice([2**53 + 1, -(2**62), 7]),
            lambda: chosen.choice([0.5, 1.0, -0.0, float("inf"), 1e300]),
            lambda: chosen.choice([1, 0.5]),
            lambda: chosen.choice(["", "é", "a longer text", "NULL"]),
            lambda: chosen.choice([b"", b"\x00\xff"]),
            lambda: datetime.date(2026, 3, chosen.randint(1, 28)),
            lambda: datetime.datetime(2026, 3, 1, 12, 30, 1, chosen.randint(0, 999999)),
            lambda: datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=chosen.randint(-9, 9)))),
            lambda: datetime.time(chosen.randint(0, 23), 5, 6, 7),
            lambda: datetime.timedelta(days=chosen.randint(-5, 5), microseconds=3),
            lambda: decimal.Decimal(chosen.choice(["1", "-12.5", "0.001", "123456789012345678"])),
            lambda: None,
        ]
        if depth == 0 or chosen.random() < 0.55:
            return chosen.choice(simple)
        return chosen.choice([self._array, self._list, self._dict])(depth - 1)

    def _array(self, _: int) -> Make:
        dtype = self._random.choice(["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint64", "bool"])
        dimensions = self._random.choice([1, 1, 2, 3])
        lengths = self._random.choice([(3,), (0, 1, 2, 4)])

        def make() -> Any:
            shape = [self._random.choice(lengths) for _ in range(dimensions)]
            return numpy.array([self._random.randint(0, 100) for _ in range(int(numpy.prod(shape)))]).astype(dtype).reshape(shape)

        return make

    def _list(self, depth: int) -> Make:
        element = self._kind(depth)
        return lambda: [element() for _ in range(self._random.randint(0, 3))]

    def _dict(self, depth: int) -> Make:
        values = {name: self._kind(depth) for name in ("x", "y", "z")[: self._random.randint(0, 3)]}

        def make() -> Any:
            return {name: value() for name, value in values.items() if self._random.random() < 0.9}

        return make
