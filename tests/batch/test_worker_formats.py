# SPDX-License-Identifier: BSD-3-Clause
"""Inputs as other programs write them: random files of each kind and compression, compared with what was written."""

import bz2
import csv
import gzip
import io
import itertools
import json
import lzma
import os
import random
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from test_worker_jobs import Folder, folder, refs  # noqa: F401
from test_worker_sources import count, everything, of_input

# isort: split
# test_worker_jobs has put this package on sys.path.
from isopool_batch import calls
from isopool_batch.job import Job
from isopool_batch.sources import source_of

pyarrow = pytest.importorskip("pyarrow")
dataset = pytest.importorskip("pyarrow.dataset")
parquet = pytest.importorskip("pyarrow.parquet")

SEED = int(os.environ.get("ISOPOOL_TEST_SEED", random.randrange(1 << 30)))
FILES = int(os.environ.get("ISOPOOL_TEST_TABLES", 40))

Compress = Callable[[bytes], bytes]
COMPRESSIONS: dict[str, Compress] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda contents: pyarrow.compress(contents, codec="zstd", asbytes=True),  # type: ignore[no-any-return]
}


@pytest.fixture(scope="module", params=range(FILES))
def chance(request: Any) -> random.Random:
    seed = SEED + request.param
    print(f"ISOPOOL_TEST_SEED={seed} ISOPOOL_TEST_TABLES=1")
    return random.Random(seed)


def any_text(chance: random.Random) -> str:
    return "".join(chance.choice('aé"\\,;\t|\n\r x0{}[]👍') for _ in range(chance.randrange(12)))


def any_value(chance: random.Random, depth: int = 0) -> Any:
    kinds: list[Callable[[], Any]] = [
        lambda: chance.randrange(-(10**20), 10**20),
        lambda: chance.random() * 1e9,
        lambda: any_text(chance),
        lambda: None,
        lambda: chance.random() < 0.5,
        lambda: [any_value(chance, depth + 1) for _ in range(chance.randrange(4))],
        lambda: {any_text(chance): any_value(chance, depth + 1) for _ in range(chance.randrange(4))},
    ]
    return chance.choice(kinds[: 7 if depth < 3 else 5])()


def lines_of(chance: random.Random, values: list[Any]) -> bytes:
    ends = [(chance.choice(["", "\n", "  \n"]), chance.choice(["\n", "\r\n"])) for _ in values]
    texts = [json.dumps(value, ensure_ascii=chance.random() < 0.5) for value in values]
    return "".join(before + text + after for text, (before, after) in zip(texts, ends, strict=True)).encode()


def array_of(chance: random.Random, values: list[Any]) -> bytes:
    def space() -> str:
        return chance.choice(["", " ", "\n", "\t \r\n"])

    texts = [json.dumps(value, ensure_ascii=False, indent=chance.choice([None, 2])) for value in values]
    text = space() + "[" + ",".join(space() + each + space() for each in texts) + space() + "]" + space()
    return (b"\xef\xbb\xbf" if chance.random() < 0.2 else b"") + text.encode()


def csv_of(chance: random.Random, rows: list[dict[str, str]], names: list[str], delimiter: str) -> bytes:
    text = io.StringIO(newline="")
    # csv can't read what it writes of a carriage return without quotes.
    all_quoted = any("\r" in each for row in rows for each in row.values()) or chance.random() < 0.5
    writer = csv.writer(
        text,
        delimiter=delimiter,
        lineterminator=chance.choice(["\n", "\r\n"]),
        quoting=csv.QUOTE_ALL if all_quoted else csv.QUOTE_MINIMAL,
    )
    writer.writerow(names)
    for row in rows:
        writer.writerow([row[name] for name in names])
    return (b"\xef\xbb\xbf" if chance.random() < 0.2 else b"") + text.getvalue().encode()


def text_file(chance: random.Random, kind: str) -> tuple[bytes, list[Any]]:
    items = chance.randrange(40)
    if kind in ("csv", "tsv"):
        names = [f"c{number}" for number in range(chance.randrange(2, 5))]
        rows = [{name: any_text(chance) for name in names} for _ in range(items)]
        return csv_of(chance, rows, names, "\t" if kind == "tsv" else chance.choice(",;\t|")), rows
    values = [any_value(chance) for _ in range(items)]
    return (lines_of if kind == "jsonl" else array_of)(chance, values), values


def compressed(chance: random.Random, name: str, contents: bytes) -> tuple[str, bytes]:
    """Perhaps of two parts, as programs that append write them."""
    ending = chance.choice(["", *COMPRESSIONS])
    if not ending:
        return name, contents
    middle = chance.randrange(len(contents) + 1)
    parts = [contents] if chance.random() < 0.5 else [contents[:middle], contents[middle:]]
    return name + ending, b"".join(map(COMPRESSIONS[ending], parts))


def input_of(folder: Folder, files: list[tuple[str, bytes]], kind: str, **more: Any) -> str:
    for name, contents in files:
        (folder / name).write_bytes(contents)
    return of_input(folder, kind, [str(folder / name) for name, _ in files], **more)


def in_any_order(job: str, rows: int, chance: random.Random) -> list[Any]:
    """The items, whose chunks and items are read in any order by one worker."""
    planned = refs(job, rows)
    found: list[Any] = [None] * sum(ref["rows"] for ref in planned)
    begins = itertools.accumulate((ref["rows"] for ref in planned), initial=0)
    source = source_of(Job.parse(job))
    for begin, ref in chance.sample(list(zip(begins, planned, strict=False)), len(planned)):
        items = source.open(ref)
        assert items.change() == ""
        for index in chance.sample(range(ref["rows"]), ref["rows"]):
            found[begin + index] = items.read(index)[1]
        index = chance.randrange(ref["rows"])
        assert items.read(index)[1] == found[begin + index]
    return found


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "tsv"])
def test_text_files_have_the_items_that_were_written(folder: Folder, chance: random.Random, kind: str) -> None:
    files, wanted = [], []
    for number in range(chance.randrange(1, 4)):
        contents, items = text_file(chance, kind)
        files.append(compressed(chance, f"{number}.{kind}", contents))
        wanted += items
    job = input_of(folder, files, "csv" if kind in ("csv", "tsv") else "jsonl")
    if not wanted:
        with pytest.raises(ValueError, match="no items"):
            count(job)
        return
    rows = chance.randrange(1, 20)
    assert count(job) == len(wanted)
    assert [item for _, item in everything(job, rows)] == wanted
    assert in_any_order(job, rows, chance) == wanted


def tar_of(chance: random.Random) -> tuple[bytes, list[dict[str, Any]]]:
    stream = io.BytesIO()
    format = chance.choice([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    letters = "abc" if format == tarfile.USTAR_FORMAT else "abcé"
    wanted = []
    with tarfile.open(fileobj=stream, mode="w", format=format) as tar:

        def add(name: str, contents: bytes) -> None:
            member = tarfile.TarInfo(name)
            member.size = len(contents)
            tar.addfile(member, io.BytesIO(contents))

        for number in range(chance.randrange(1, 30)):
            long = 20 if format == tarfile.USTAR_FORMAT else 150
            key = chance.choice(["", "d/", "d.x/"]) + f"{number}" + chance.choice(letters) * chance.randrange(long)
            if chance.random() < 0.2:
                folder = tarfile.TarInfo("d")
                folder.type = tarfile.DIRTYPE
                tar.addfile(folder)
                add(f"d/.{number}", b"hidden")
            item: dict[str, Any] = {"__key__": key}
            for ending in chance.sample(["jpg", "json", "seg.png", "cls", ""], chance.randrange(1, 5)):
                contents = chance.randbytes(chance.choice([0, 1, 511, 512, 513, 5000]))
                add(f"{key}.{ending}" if ending else key, contents)
                item[ending] = contents
            wanted.append(item)
    return stream.getvalue(), wanted


def test_tar_files_have_the_items_that_were_written(folder: Folder, chance: random.Random) -> None:
    written = [tar_of(chance) for _ in range(chance.randrange(1, 3))]
    job = input_of(folder, [(f"{number}.tar", contents) for number, (contents, _) in enumerate(written)], "tar")
    wanted = [item for _, items in written for item in items]
    rows = chance.randrange(1, 20)
    assert count(job) == len(wanted)
    assert everything(job, rows) == [(item["__key__"], item) for item in wanted]
    assert in_any_order(job, rows, chance) == wanted


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "tar", *(f"jsonl{ending}" for ending in COMPRESSIONS)])
def test_a_file_that_is_cut_off_is_refused_or_loses_nothing(folder: Folder, chance: random.Random, kind: str) -> None:
    name, _, ending = kind.partition(".")
    if kind == "tar":
        contents, items = tar_of(chance)
    else:
        values = [{"number": number, "text": any_text(chance)} for number in range(20)]
        items = [{key: str(value) for key, value in each.items()} for each in values] if kind == "csv" else values
        if kind == "csv":
            contents = csv_of(chance, items, ["number", "text"], ",")
        else:
            contents = array_of(chance, values).strip() if kind == "json" else lines_of(chance, values)
    if ending:
        contents = COMPRESSIONS[f".{ending}"](contents)
    # An empty file is JSON without items.
    cut = contents[: chance.randrange(kind == "json", len(contents))]
    job = input_of(folder, [(f"in.{kind}", cut)], name if name in ("csv", "tar") else "jsonl")
    try:
        found = everything(job, 7)
    except ValueError as error:
        # Of a text without an end mark, the last item fails; else the file is refused.
        assert kind in ("jsonl", "csv") or str(folder / f"in.{kind}") in str(error), error
        return
    assert kind in ("jsonl", "csv", "tar"), f"{len(found)} of {len(items)} items of {len(cut)} of {len(contents)} bytes"
    if kind == "csv":  # the last field may be cut off, too: nothing tells
        del found[-1:]
    assert [item for _, item in found] == (items if kind == "tar" else items[: len(found)])


def test_columns_of_folders_are_those_that_pyarrow_reads(folder: Folder, chance: random.Random) -> None:
    rows = chance.randrange(1, 60)
    table = pyarrow.table(
        {
            "number": range(rows),
            "year": [chance.choice([2024, 2025, None]) for _ in range(rows)],
            "place": [chance.choice(["Köln", "a b", "x/y", "=", "%", None]) for _ in range(rows)],
        }
    )
    partitioning = dataset.partitioning(
        pyarrow.schema([("year", pyarrow.int64()), ("place", pyarrow.string())]), flavor="hive"
    )
    dataset.write_dataset(table, folder / "in", format="parquet", partitioning=partitioning)
    paths = sorted(str(path) for path in (folder / "in").rglob("*.parquet"))
    partitions = [os.path.dirname(os.path.relpath(path, folder / "in")) for path in paths]
    job = of_input(folder, "parquet", paths, input={"partitions": partitions})
    names = table.column_names
    found = [{name: item[name] for name in names} for _, item in everything(job, 7)]
    assert sorted(map(repr, found)) == sorted(map(repr, table.to_pylist()))
    column = json.dumps(json.loads(job) | {"column": "place"})
    assert sorted(map(repr, (item for _, item in everything(column, 7)))) == sorted(
        map(repr, table["place"].to_pylist())
    )


def test_csv_has_texts_and_a_wrong_row_fails_alone(folder: Folder) -> None:
    long = "x" * 200_000
    text = f'id,a,"b, c"\n007,NA,"two ""lines""\n"\n\n1,2\n2,"x"y,3\n3,\udcff,4\n4,{long},1e5\n'
    (folder / "in.csv").write_bytes(text.encode("utf-8", "surrogateescape"))
    job = of_input(folder, "csv", [str(folder / "in.csv")])
    limit = csv.field_size_limit(1000)
    try:
        assert count(job) == 5
        items = source_of(Job.parse(job)).open(refs(job)[0])
        assert items.read(0) == ("007", {"id": "007", "a": "NA", "b, c": 'two "lines"\n'})
        wrong = {1: "the record has 2 fields, and the header names 3 columns", 2: "the record is not CSV", 3: "'a' is not"}
        for index, message in wrong.items():
            with pytest.raises(ValueError, match=message):
                items.read(index)
        assert items.read(4) == ("4", {"id": "4", "a": long, "b, c": "1e5"})
        assert csv.field_size_limit() == 1000, "a model finds its own limit"
    finally:
        csv.field_size_limit(limit)


@pytest.mark.parametrize(
    "name, contents, message",
    [
        ("in.csv", "a,b,a\n1,2,3\n", "two columns 'a'"),
        ("in.csv", "\n\n", "has no header"),
        ("in.csv", b"\xff\xfea\x00,\x00b\x00\n\x00", "UTF-8"),
        ("in.json", '{\n "a": 1\n}\n', "neither a JSON array nor JSON lines.*--files"),
        ("in.json", "[1, 2,]", "not a JSON array"),
        ("in.json", "[1 2]", "no comma at '2]'"),
        ("in.json", "[1] [2]", "more behind the end"),
        ("in.json", "[" * 100_000, "nested too deeply"),
        ("in.json", "[1, nul, 3" + " " * 100 + "]", "not a JSON array"),
        ("in.jsonl", gzip.compress(b"1\n"), "decompress"),
        ("in.jsonl.gz", "1\n", "can't be read"),
        ("in.jsonl.zst", "1\n", "can't be read"),
        ("in.jsonl.gz", "", "it is empty"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_refused(
    folder: Folder, name: str, contents: str | bytes, message: str
) -> None:
    (folder / name).write_bytes(contents if isinstance(contents, bytes) else contents.encode())
    job = of_input(folder, "csv" if "csv" in name else "jsonl", [str(folder / name)])
    with pytest.raises(ValueError, match=message) as caught:
        everything(job, 10)
    assert str(folder / name) in str(caught.value)


@pytest.mark.parametrize("ending", [".xz", ".bz2", ".gz"])
def test_what_lies_behind_a_compressed_stream_is_read_or_refused(folder: Folder, ending: str) -> None:
    one, two = (COMPRESSIONS[ending](b'{"n": %d}\n' % number) for number in (1, 2))
    name = f"in.jsonl{ending.upper() if ending == '.xz' else ending}"

    def items(contents: bytes) -> list[Any]:
        (folder / name).write_bytes(contents)
        return [item for _, item in everything(of_input(folder, "jsonl", [str(folder / name)]), 10)]

    assert items(one + two) == [{"n": 1}, {"n": 2}]
    if ending != ".bz2":
        assert items(one + bytes(8) + two + bytes(4)) == [{"n": 1}, {"n": 2}]
    for damaged in (one + b"garbage", one + b"\xff" + two[1:], one + two[:-1]):
        with pytest.raises(ValueError, match="can't be read"):
            items(damaged)


def test_a_column_alone_has_empty_lines_as_empty_fields_and_spreadsheets_name_the_delimiter(folder: Folder) -> None:
    for text, wanted in (
        ("a\n1\n\n2\n", [{"a": "1"}, {"a": ""}, {"a": "2"}]),
        ("sep=;\r\na;b,c\r\n1;2\r\n", [{"a": "1", "b,c": "2"}]),
        ("\ufeffsep=|\na|b\n1|2\n\n", [{"a": "1", "b": "2"}]),
    ):
        (folder / "in.csv").write_bytes(text.encode())
        job = of_input(folder, "csv", [str(folder / "in.csv")])
        assert [item for _, item in everything(job, 2)] == wanted


def test_json_files_of_lines_are_json_lines(folder: Folder) -> None:
    (folder / "in.json").write_text('\n{"a": 1}\n{"a": 2}\n')
    job = of_input(folder, "jsonl", [str(folder / "in.json"), folder.jsonl([3], "more.jsonl")])
    assert [item for _, item in everything(job, 10)] == [{"a": 1}, {"a": 2}, 3]


@pytest.mark.parametrize("damage", ["joined", "header", "twice", "link", "apart"])
def test_a_tar_file_whose_members_would_be_lost_is_refused(folder: Folder, damage: str) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name in ("1.a", "1.b", "2.a", "2.a" if damage == "twice" else "2.b"):
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
        if damage == "apart":
            tar.addfile(tarfile.TarInfo("1.c"), io.BytesIO())
        if damage == "link":
            link = tarfile.TarInfo("3.a")
            link.type, link.linkname = tarfile.SYMTYPE, "1.a"
            tar.addfile(link)
    contents = bytearray(stream.getvalue())
    if damage == "joined":
        contents *= 2
    elif damage == "header":
        contents[1024] ^= 1
    (folder / "in.tar").write_bytes(contents)
    with pytest.raises(ValueError, match="in.tar"):
        count(of_input(folder, "tar", [str(folder / "in.tar")]))


def test_folders_that_name_numbers_as_texts_stay_texts_and_must_agree(folder: Folder) -> None:
    paths = [folder.jsonl([{"a": 1}], "1.jsonl"), folder.jsonl([{"a": 2}], "2.jsonl")]
    job = of_input(folder, "jsonl", paths, input={"partitions": ["n=7/month=01", "n=-8/month=12"]})
    assert [item for _, item in everything(job, 10)] == [
        {"a": 1, "n": 7, "month": "01"},
        {"a": 2, "n": -8, "month": "12"},
    ]
    other = of_input(folder, "jsonl", paths, input={"partitions": ["n=7/month=01", "n=-8/month=02"]})
    assert json.loads(calls.planner(job).summary()) != json.loads(calls.planner(other).summary())
    with pytest.raises(ValueError, match="in jobs of their own"):
        count(of_input(folder, "jsonl", paths, input={"partitions": ["n=7", ""]}))
    twice = source_of(Job.parse(of_input(folder, "jsonl", paths, input={"partitions": ["a=1", "a=2"]})))
    with pytest.raises(ValueError, match="so has its folder"):
        twice.open(next(twice.refs(1))).read(0)
