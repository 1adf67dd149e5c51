# SPDX-License-Identifier: BSD-3-Clause
"""The types of a job's columns: all parts have them, so that each reader takes the parts as one table.

ISOPOOL_TEST_SEED chooses the random tables, ISOPOOL_TEST_TABLES how many.
"""

import datetime
import decimal
import json
import math
import os
import pathlib
import random
from collections.abc import Callable
from typing import Any

import pytest
from random_rows import RandomRows
from test_worker_jobs import Folder, folder, opened, part_of  # noqa: F401

# isort: split
# test_worker_jobs has put this package on sys.path.
from isopool_batch import calls, column_types, columns, schema, sinks, values

numpy = pytest.importorskip("numpy")
pyarrow = pytest.importorskip("pyarrow")
dataset = pytest.importorskip("pyarrow.dataset")
parquet = pytest.importorskip("pyarrow.parquet")

SEED = int(os.environ.get("ISOPOOL_TEST_SEED", random.randrange(2**32)))
TABLES = int(os.environ.get("ISOPOOL_TEST_TABLES", 60))

Rows = list[dict[str, Any]]


def by_pyarrow(folder: pathlib.Path) -> Rows:
    return dataset.dataset(folder).to_table().to_pylist()


def by_pandas(folder: pathlib.Path) -> Rows:
    import pandas

    frame = pandas.read_parquet(folder, dtype_backend="pyarrow")
    return pyarrow.Table.from_pandas(frame, preserve_index=False).to_pylist()


def by_polars(folder: pathlib.Path) -> Rows:
    import polars

    return polars.read_parquet(folder / "*.parquet").to_dicts()


def by_duckdb(folder: pathlib.Path) -> Rows:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        answer = connection.execute(f"SELECT * FROM '{folder}/*.parquet'")
        names = [column[0] for column in answer.description]
        return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


def by_datasets(folder: pathlib.Path) -> Rows:
    import datasets

    datasets.disable_progress_bars()
    found = datasets.load_dataset(str(folder), split="train", cache_dir=str(folder.parent / "cache"))
    return found.with_format("arrow")[:].to_pylist()


READERS: dict[str, Callable[[pathlib.Path], Rows]] = {
    "pyarrow": by_pyarrow,
    "pandas": by_pandas,
    "Polars": by_polars,
    "DuckDB": by_duckdb,
    "datasets": by_datasets,
}


def plain(value: Any, type: column_types.Type) -> Any:
    """A value as a column of this type gives it back, in a form that can be compared."""
    if value is None or type == column_types.NULL or type == column_types.EMPTY:
        return None
    match type:
        case ("list" | "array", *_):
            return [plain(each, type[-1]) for each in value]
        case ("dict", fields):
            return {name: plain(value.get(name), each) for name, each in fields}
        case ("timestamp", True):
            return value.timestamp()
        case ("duration",):
            # DuckDB has no type for them and gives microseconds.
            return value if isinstance(value, int) else value // datetime.timedelta(microseconds=1)
        case ("decimal", *_):
            return decimal.Decimal(value).normalize()
        case ("number", name):
            number = numpy.float64(value) if "float" in name else int(value)
            return "nan" if number != number else (number, math.copysign(1, number))
        case ("bool",):
            return bool(value)
    return value


@pytest.mark.parametrize("number", range(TABLES))
def test_every_reader_finds_the_rows_of_all_parts(tmp_path: pathlib.Path, number: int) -> None:
    seed = SEED + number
    source = RandomRows(seed)
    parts = [
        [{name: values.storable(value) for name, value in row.items()} for row in source.rows(20, 20 * part)]
        for part in range(5)
    ]
    decided = schema.decided([schema.counted(parts[part]) for part in (0, 2, 4)])
    expected = []
    (tmp_path / "out").mkdir()
    for part, rows in enumerate(parts):
        aside = columns.misfits(rows, decided)
        kept = [row for index, row in enumerate(rows) if index not in aside]
        if not kept:
            continue
        expected += [{name: plain(row.get(name), type) for name, type in decided.items()} for row in kept]
        with open(tmp_path / "out" / f"part-{part:06d}.parquet", "wb") as file:
            sinks.write_parquet(kept, decided, file)
        # Most results of a job are kept: what is set aside does not go together with most others.
        assert len(aside) < len(rows) or part % 2 == 1, (seed, aside)
    for name, reader in READERS.items():
        if name == "DuckDB" and any("decimal256" in column_types.in_words(type) for type in decided.values()):
            continue  # it has 38 digits
        found = sorted(reader(tmp_path / "out"), key=lambda row: row["id"])
        got = [{name: plain(row[name], type) for name, type in decided.items()} for row in found]
        assert got == expected, (name, seed, {name: column_types.in_words(type) for name, type in decided.items()})


@pytest.mark.parametrize(
    ("results", "type", "aside"),
    [
        ([0, 1, 0.7], "double", []),
        ([1, 2**53 + 1, 0.5], "int64", [2]),
        ([0.5, 0.25, 2**53 + 1], "double", [2]),
        ([[], [1], ["a"]], "list<item: int64>", [2]),
        ([[1, "a"], [1], [2]], "list<item: int64>", [0]),
        ([None, None, {}], "null", []),
        ([{}, {"a": 1}, {"b": "x"}], "struct<a: int64, b: string>", []),
        ([True, 1, 2], "int64", [0]),
        (["a", b"b", "c"], "string", [1]),
        ([1, "1", None], "int64", [1]),
        ([datetime.time(1), datetime.time(1, tzinfo=datetime.timezone.utc)], "time64[us]", [1]),
        ([decimal.Decimal(10) ** 80, decimal.Decimal("1.5"), decimal.Decimal("NaN")], "decimal128(2, 1)", [0, 2]),
    ],
)
def test_the_type_of_a_column_is_that_of_most_values_and_no_value_changes(
    results: list[Any], type: str, aside: list[int]
) -> None:
    rows = [{"id": index, "result": value} for index, value in enumerate(results)]
    decided = schema.decided([schema.counted(rows)])
    assert column_types.in_words(decided["result"]).replace("element", "item") == type
    assert list(columns.misfits(rows, decided)) == aside


def test_a_key_that_comes_later_is_set_aside_with_the_value() -> None:
    decided = schema.decided([schema.counted([{"id": 1, "a": {"x": 1}}])])
    late = [{"id": 2, "a": {"x": 1}, "b": 3}, {"id": 3, "a": {"x": 1, "y": 2}}, {"id": 4, "b": None}]
    found = columns.misfits(late, decided)
    assert found[0] == "the schema of the job has no column 'b', and the value of this item is 3 (int64)"
    assert "the key 'y' is not in it" in found[1] and "column 'a' has the type struct<x: int64>" in found[1]
    assert list(found) == [0, 1]


def test_the_order_of_the_chunks_decides_and_not_that_of_their_ends(folder: Folder) -> None:
    first, second = ([{"id": 1, name: 1}] for name in ("a", "b"))
    decided = schema.decided([schema.counted(first), schema.counted(second)])
    assert list(decided) == ["id", "a", "b"]


def test_the_first_writer_of_the_schema_decides(tmp_path: pathlib.Path) -> None:
    assert schema.of_output(str(tmp_path)) is None
    (tmp_path / "__job__").mkdir()
    schema.freeze(str(tmp_path), "job", {"id": column_types.TEXT, "a": ("array", 2, ("number", "float32"))})
    schema.freeze(str(tmp_path), "job", {"id": column_types.NULL})
    assert schema.of_output(str(tmp_path)) == {"id": ("text",), "a": ("array", 2, ("number", "float32"))}
    (tmp_path / schema.FILE).write_text("{")
    with pytest.raises(ValueError, match="is damaged"):
        schema.of_output(str(tmp_path))


@pytest.mark.parametrize("kind", ["file", "schema", "function"])
def test_a_given_schema_holds(folder: Folder, kind: str) -> None:
    types = pyarrow.schema([("id", pyarrow.string()), ("score", pyarrow.float64()), ("tags", pyarrow.list_(pyarrow.string()))])
    if kind == "file":
        source = str(folder / "types.parquet")
        parquet.write_table(types.empty_table(), source)
    else:
        fields = "[('id', pyarrow.string()), ('score', pyarrow.float64()), ('tags', pyarrow.list_(pyarrow.string()))]"
        made = f"types = pyarrow.schema({fields})" if kind == "schema" else f"def types(): return pyarrow.schema({fields})"
        source = folder.write("types_of_it.py", f"import pyarrow\n{made}\n") + ":types"
    code = "def f(n): return {'score': n, 'tags': []} if n < 2 else {'score': 'high'}"
    job = folder.job(code, [0, 1, 2], format="parquet", schema=source)
    (folder / "out" / "__job__").mkdir(parents=True)
    calls.freeze_schema(job, "a fingerprint", [])
    ((item, reason),) = part_of(job)["misfits"]
    assert item == 2 and "column 'score' has the type double" in reason
    chunk = opened(job, skip=[2])
    chunk.finish()
    table = parquet.read_table(folder / "out" / "part-000000.parquet")
    assert [str(field.type) for field in table.schema] == ["string", "double", "list<element: string>"]
    assert table.to_pylist()[1] == {"id": "in.jsonl:1", "score": 1.0, "tags": []}


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import pyarrow\ntypes = pyarrow.schema([('a', pyarrow.int8())])", 'no column "id"'),
        ("import pyarrow\ntypes = pyarrow.schema([('id', pyarrow.int8()), ('id', pyarrow.int8())])", "two columns 'id'"),
        ("import pyarrow\ntypes = pyarrow.schema([('id', pyarrow.month_day_nano_interval())])", "no column of results has"),
        ("import pyarrow\ntypes = pyarrow.schema([('id', pyarrow.timestamp('s'))])", r"the nearest is timestamp\[us\]"),
        ("types = {'id': int}", "is of class dict"),
    ],
)
def test_a_wrong_schema_is_refused_before_the_first_item(folder: Folder, source: str, reason: str) -> None:
    path = folder.write(f"wrong_{abs(hash(reason))}.py", source)
    job = folder.job("def f(n): return n", [1], format="parquet", schema=f"{path}:types")
    with pytest.raises(ValueError, match=reason):
        calls.planner(job).summary()


def test_a_schema_for_json_lines_is_refused(folder: Folder) -> None:
    with pytest.raises(ValueError, match="which has no types"):
        calls.planner(folder.job("def f(n): return n", [1], schema="types.parquet"))


def test_ids_are_texts_if_some_are(folder: Folder) -> None:
    rows = [{"id": 1}, {"id": "b"}]
    decided = schema.decided([schema.counted(rows)])
    assert columns.table([*rows, {"id": 2}], decided)["id"].to_pylist() == ["1", "b", "2"]
    decided = schema.decided([schema.counted([{"id": 1}])])
    assert "column 'id' has the type int64" in columns.misfits([{"id": "b"}], decided)[0]
    assert json.loads(schema.counted(rows))["id"] == [[["number", "int"], 1], [["text"], 1]]
