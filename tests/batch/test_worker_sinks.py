# SPDX-License-Identifier: BSD-3-Clause
"""Part files: values come back from both formats, and the same rows make the same bytes."""

import base64
import datetime
import json
import math
import pathlib
from typing import Any

import pytest
from test_worker_jobs import Folder, completed, failure, folder, opened, part_of  # noqa: F401

# isort: split
# test_worker_jobs has put this package on sys.path.
from isopool_batch import columns, values

numpy = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

CODE = """
    import dataclasses, datetime, decimal, enum, numpy, torch

    @dataclasses.dataclass
    class Box:
        x: float
        label: str

    class Color(enum.Enum):
        RED = "red"

    def f(n):
        return {
            "number": n,
            "real": n / 2,
            "text": f"é{n}",
            "bytes": bytes([n, 255]),
            "none": None,
            "sometimes": None if n == 1 else n,
            "flag": n > 1,
            "vector": torch.tensor([n, 0.1], dtype=torch.float32),
            "brain": torch.tensor([n, 0.5], dtype=torch.bfloat16),
            "half": numpy.array([n, 0.5], numpy.float16),
            "small": numpy.array([n, n], numpy.int8),
            "ragged": numpy.arange(n, dtype=numpy.uint16),
            "matrix": torch.full((2, n), n, dtype=torch.int32),
            "scalar": torch.tensor(n),
            "scalars": [numpy.float32(n), numpy.int64(n)],
            "gone": torch.nn.Parameter(torch.ones(1)) * n,
            "box": Box(n, "a"),
            "boxes": [Box(1, "a")] * n,
            "arrays": [numpy.ones(1, numpy.float32)] * n,
            "nested": {"ids": numpy.array([n], numpy.int16), "keys": {1: n}},
            "time": datetime.datetime(2026, 1, n, 12),
            "color": Color.RED,
            "words": numpy.array(["a", "b"]),
        }
    """


def parquet_job(folder: Folder, code: str, rows: list[Any], **more: Any) -> str:
    return folder.job(code, rows, format="parquet", **more)


def table_of(rows: list[Any]) -> Any:
    return columns.table(rows, columns.schema_of(columns.types_in(rows)))


def read(folder: Folder) -> Any:
    return parquet.read_table(folder / "out" / "part-000000.parquet")


def test_parquet_keeps_values_and_dtypes(folder: Folder) -> None:
    completed(parquet_job(folder, CODE, [1, 2, 3]))
    table = read(folder)
    types = {field.name: str(field.type) for field in table.schema}
    assert table.column_names[0] == "id"
    assert types["vector"].startswith("fixed_size_list") and types["vector"].endswith("float>[2]")
    assert "halffloat" in types["half"] and "int8" in types["small"] and "float>[2]" in types["brain"]
    assert types["ragged"] == "list<element: uint16>"
    assert types["matrix"] == "list<element: list<element: int32>>"
    assert types["arrays"] == "list<element: list<element: float>>" or "float>" in types["arrays"]
    assert "int16" in types["nested"]
    assert types["bytes"] == "binary" and types["none"] == "null" and types["time"] == "timestamp[us]"
    row = table.to_pylist()[2]
    assert row["vector"] == [3.0, numpy.float32(0.1)]
    assert row | {"vector": None} == {
        "id": "in.jsonl:2",
        "number": 3,
        "real": 1.5,
        "text": "é3",
        "bytes": b"\x03\xff",
        "none": None,
        "sometimes": 3,
        "flag": True,
        "vector": None,
        "brain": [3.0, 0.5],
        "half": [3.0, 0.5],
        "small": [3, 3],
        "ragged": [0, 1, 2],
        "matrix": [[3, 3, 3], [3, 3, 3]],
        "scalar": 3,
        "scalars": [3.0, 3],
        "gone": [3.0],
        "box": {"x": 3, "label": "a"},
        "boxes": [{"x": 1, "label": "a"}] * 3,
        "arrays": [[1.0]] * 3,
        "nested": {"ids": [3], "keys": {"1": 3}},
        "time": datetime.datetime(2026, 1, 3, 12),
        "color": "red",
        "words": ["a", "b"],
    }
    assert [each["sometimes"] for each in table.to_pylist()] == [None, 2, 3]


def test_json_lines_keep_values_as_text(folder: Folder) -> None:
    completed(folder.job(CODE, [1, 2, 3]))
    assert folder.part().startswith('{"id":"in.jsonl:0","number":1,"real":0.5,"text":"é1"'.encode())
    row = folder.rows()[2]
    assert base64.b64decode(row["bytes"]) == b"\x03\xff"
    assert row["time"] == "2026-01-03T12:00:00"
    assert row["matrix"] == [[3, 3, 3], [3, 3, 3]]
    assert numpy.float32(row["vector"][1]) == numpy.float32(0.1)
    assert (row["none"], row["flag"], row["nested"]) == (None, True, {"ids": [3], "keys": {"1": 3}})


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_the_same_input_makes_the_same_bytes(folder: Folder, format: str) -> None:
    job = folder.job(CODE, [1, 2, 3], format=format)
    completed(job)
    first = folder.part(f"part-000000.{format}")
    chunk = opened(job)
    for item in (2, 0, 1):
        assert chunk.run(item, 1) == ""
    chunk.finish()
    assert folder.part(f"part-000000.{format}") == first


def test_numbers_that_json_lacks_are_written_as_python_does(folder: Folder) -> None:
    completed(folder.job("def f(x): return [float('nan'), float('-inf')]", [1]))
    assert folder.part() == b'{"id":"in.jsonl:0","result":[NaN,-Infinity]}\n'
    completed(parquet_job(folder, "def f(x): return float('nan')", [1]))
    assert math.isnan(read(folder)["result"][0].as_py())


def test_ids_keep_their_type_or_become_strings_together(folder: Folder) -> None:
    completed(parquet_job(folder, "def f(row): return 1", [{"id": 1}, {"id": 2}]))
    assert str(read(folder).schema.field("id").type) == "int64"
    folder.clear()
    completed(parquet_job(folder, "def f(row): return 1", [{"id": 1}, {}]))
    assert read(folder)["id"].to_pylist() == ["1", "in.jsonl:1"]


def test_rows_without_a_key_have_null(folder: Folder) -> None:
    completed(parquet_job(folder, "def f(n): return {f'k{n}': n, 'empty': {}}", [1, 2]))
    table = read(folder)
    assert table.column_names == ["id", "k1", "empty", "k2"]
    assert table["k2"].to_pylist() == [None, 2] and table["empty"].to_pylist() == [None, None]


@pytest.mark.parametrize(
    "value",
    ["'text'", "[1]", "[{'x': 1}]", "b'bytes'", "numpy.zeros(2)"],
)
@pytest.mark.parametrize("place", [0, 3])
def test_values_that_do_not_go_together_with_most_others_are_named_and_the_rest_is_written(
    folder: Folder, value: str, place: int
) -> None:
    job = parquet_job(folder, f"import numpy\ndef f(n): return {value} if n == {place} else n", list(range(6)))
    ((item, reason),) = part_of(job)["misfits"]
    assert item == place and "column 'result' has the type int64" in reason
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["__job__"]
    chunk = opened(job, skip=[item])
    assert json.loads(chunk.finish())["rows"] == 5
    assert read(folder)["result"].to_pylist() == [n for n in range(6) if n != place]


@pytest.mark.parametrize(
    ("usual", "other"),
    [
        ("datetime.datetime(2026, 3, 1, 12)", "datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.timezone.utc)"),
        ("datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.timezone.utc)", "datetime.datetime(2026, 3, 1, 12)"),
        ("datetime.date(2026, 3, 1)", "datetime.datetime(2026, 3, 1, 12)"),
        ("datetime.datetime(2026, 3, 1, 12)", "datetime.date(2026, 3, 1)"),
        ("'text'", "b'bytes'"),
        ("b'bytes'", "'text'"),
        ("['text']", "['text', b'bytes']"),
        ("[datetime.date(2026, 3, 1)]", "[datetime.datetime(2026, 3, 1, 12)]"),
        ("{'at': [datetime.date(2026, 3, 1)]}", "{'at': [datetime.datetime(2026, 3, 1, 12)]}"),
    ],
)
@pytest.mark.parametrize("place", [0, 3])
def test_times_and_texts_that_would_be_changed_to_fit_are_named(
    folder: Folder, usual: str, other: str, place: int
) -> None:
    job = parquet_job(folder, f"import datetime\ndef f(n): return [{other} if n == {place} else {usual}]", list(range(6)))
    ((item, reason),) = part_of(job)["misfits"]
    assert item == place and "column 'result'" in reason
    chunk = opened(job, skip=[item])
    assert json.loads(chunk.finish())["rows"] == 5
    expected = eval(usual)
    assert read(folder)["result"].to_pylist() == [[expected]] * 5


def test_times_with_one_zone_or_several_are_the_same_instants(folder: Folder) -> None:
    source = """
    import datetime
    def f(n):
        zone = datetime.timezone(datetime.timedelta(hours=n))
        return datetime.datetime(2026, 3, 1, 12, tzinfo=zone)
    """
    completed(parquet_job(folder, source, [1, 2]))
    first, second = read(folder)["result"].to_pylist()
    assert first.timestamp() - second.timestamp() == 3600


@pytest.mark.parametrize(
    "expression",
    [
        "object()",
        "numpy.datetime64('2026-03-01T12:00:00.000000001')",
        "numpy.array(['2026-03-01T12:00:00.000000001', 'NaT'], 'M8[ns]')",
        "numpy.timedelta64(1, 'ns')",
        "{1, 2}",
        "1j",
        "1 << 63",
        "10 ** 9000",
        "'\\ud800'",
        "{'1': 0, 1: 0}",
        "{(1, 2): 0}",
        "{'\\ud800': 1}",
        "numpy.zeros(2, complex)",
        "numpy.ma.masked_array([1, 2], [True, False])",
        "numpy.array([object()])",
        "iter([])",
    ],
)
def test_a_value_without_a_form_is_a_failure_of_its_item(folder: Folder, expression: str) -> None:
    found = failure(opened(folder.job(f"import numpy\ndef f(n): return [{expression}]", [1])).run(0, 1))
    assert (found["phase"], found["item"], found["reason"]) == ("write", 0, "raised")
    assert "\n" not in found["message"]


def test_foreign_memory_layouts_are_stored() -> None:
    base = numpy.arange(6, dtype=">i4").reshape(2, 3)
    stored = values.storable(base.T)
    assert stored.dtype == numpy.int32 and stored.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert values.storable(numpy.longdouble(1.5)) == 1.5
    assert values.storable(numpy.datetime64("2026-01-02")) == datetime.datetime(2026, 1, 2)
    assert values.storable(torch.eye(2).to_sparse()).tolist() == [[1, 0], [0, 1]]
    assert values.storable(torch.tensor([1 + 2j]).conj().real).tolist() == [1]
    assert values.storable(pathlib.Path("/a")) == "/a"


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 2), (1, 2, 3)])
def test_arrays_of_each_shape_come_back(folder: Folder, shape: tuple[int, ...]) -> None:
    array = numpy.arange(math.prod(shape), dtype=numpy.uint8).reshape(shape)
    table = table_of([{"id": 1, "a": array}, {"id": 2, "a": None}, {"id": 3, "a": array}])
    parquet.write_table(table, folder / "a.parquet")
    assert parquet.read_table(folder / "a.parquet")["a"].to_pylist() == [array.tolist(), None, array.tolist()]


def test_arrays_of_several_dtypes_become_one_column() -> None:
    rows = [{"id": 1, "a": numpy.array([1], numpy.int8)}, {"id": 2, "a": numpy.array([0.5])}, {"id": 3, "a": [2.0]}]
    assert table_of(rows)["a"].to_pylist() == [[1.0], [0.5], [2.0]]
