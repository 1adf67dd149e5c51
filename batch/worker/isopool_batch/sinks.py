# SPDX-License-Identifier: BSD-3-Clause
"""The formats of part files. The same rows make the same bytes."""

import base64
import datetime
import decimal
import json
import sys
from collections.abc import Sequence
from typing import Any, BinaryIO

from isopool_batch import columns, packages
from isopool_batch.columns import Schema
from isopool_batch.job import JSONL
from isopool_batch.results import Row

def ids_in(path: str, format: str) -> list[str]:
    """The IDs of a part, as texts; none if it is no complete part."""
    try:
        if format == JSONL:
            with open(path, "rb") as file:
                return [str(json.loads(line)["id"]) for line in file]
        return [str(each) for each in packages.parquet().read_table(path, columns=["id"])["id"].to_pylist()]
    except (ValueError, KeyError, *_arrow_errors()):
        return []


def _arrow_errors() -> tuple[type[Exception], ...]:
    pyarrow = sys.modules.get("pyarrow")
    return () if pyarrow is None else (pyarrow.ArrowException,)


def write_parquet(rows: Sequence[Row], schema: Schema, file: BinaryIO) -> None:
    """Raises ValueError if a value does not fit into its column: columns.misfits() names the rows."""
    pyarrow = packages.pyarrow()
    try:
        packages.parquet().write_table(columns.table(rows, schema), file)
    except (pyarrow.ArrowException, TypeError, OverflowError, NotImplementedError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise ValueError(f"Parquet can't store the rows: {reason}; choose the format jsonl") from error


def write_jsonl(rows: Sequence[Row], file: BinaryIO) -> None:
    """A line per row: arrays as lists, bytes as base64, times in ISO 8601, durations as seconds, NaN as Python's."""
    for row in rows:
        text = json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=_plain)
        file.write(text.encode() + b"\n")


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, decimal.Decimal):
        return str(value)
    return value.tolist()  # a numpy array: values.py lets nothing else pass
