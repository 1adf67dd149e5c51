# SPDX-License-Identifier: BSD-3-Clause
"""What goes in and what comes out: inputs of all kinds, models of all kinds, and how items become calls."""

import gzip
import importlib
import io
import json
import pathlib
import tarfile
from collections.abc import Iterator

import pytest
import torch
from batch_command import JobFolder, job_folder, numbers, rows_of, squares
from torch.package.package_exporter import PackageExporter

parquet = pytest.importorskip("pyarrow.parquet")
pyarrow = pytest.importorskip("pyarrow")


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[JobFolder]:
    with job_folder(tmp_path) as made:
        made.code()
        yield made


def test_json_lines(folder: JobFolder) -> None:
    folder.jsonl(numbers(7))
    ended = folder.run("app.py:square", "in.jsonl", "-o", "out", "--chunk-size", "3", code=0)
    assert ended.out.startswith("all right: 7 of 7 items have a result, 0 set aside, in ")
    assert ended.out.count("\n") == 1
    assert list(folder.parts()) == [f"part-00000{n}.jsonl" for n in range(3)]
    lines = folder.parts()["part-000001.jsonl"].splitlines(keepends=True)
    assert lines == [b'{"id":"i3","square":9}\n', b'{"id":"i4","square":16}\n', b'{"id":"i5","square":25}\n']
    assert folder.rows() == squares(7)


def test_several_files_without_ids(folder: JobFolder) -> None:
    (folder / "a.jsonl").write_text('{"n": 1}\n\n{"n": 2}\n')
    (folder / "b.ndjson").write_text('{"n": 3}')
    folder.code("def f(n): return n * 10")
    folder.run("app.py:f", "a.jsonl", "b.ndjson", "-o", "out", "--column", "n", code=0)
    assert {identity: row["result"] for identity, row in folder.rows().items()} == {
        "a.jsonl:0": 10,
        "a.jsonl:1": 20,
        "b.ndjson:0": 30,
    }


def test_parquet(folder: JobFolder) -> None:
    count = 1000
    table = pyarrow.table({"id": list(range(count)), "text": [f"text {n}" for n in range(count)]})
    parquet.write_table(table, folder / "in.parquet", row_group_size=300)
    folder.code(
        """
        import numpy
        def embed(texts):
            lengths = [float(len(text)) for text in texts]
            return {"length": lengths, "vector": numpy.array([[length, 1] for length in lengths], numpy.float32)}
        def later(result):
            return result | {"late": str(result["length"])}
        """
    )
    line = ["app.py:embed", "in.parquet", "-o", "out", "--column", "text", "--batch-size", "32"]
    folder.run(*line, "--postprocess", "app.py:later", code=0)
    whole = parquet.read_table(folder.out / "part-000000.parquet").schema
    assert whole.field("id").type == pyarrow.int64()
    assert whole.field("vector").type == pyarrow.list_(pyarrow.float32(), 2)
    # Together they are one dataset.
    read = pytest.importorskip("pyarrow.dataset").dataset(sorted(folder.out.glob("part-*"))).to_table()
    assert read["id"].to_pylist() == list(range(count))
    for row in read.to_pylist():
        length = float(len(f"text {row['id']}"))
        assert row == {"id": row["id"], "length": length, "vector": [length, 1.0], "late": str(length)}


def test_the_other_format(folder: JobFolder) -> None:
    folder.jsonl(numbers(5, {1: "raise"}))
    folder.run("app.py:square", "in.jsonl", "-o", "out", "--format", "parquet", code=3)
    assert folder.rows() == squares(5, [1])
    [aside] = rows_of(folder.job / "quarantine.jsonl")
    assert (aside["id"], aside["reason"], aside["message"]) == ("i1", "raised", "this item is wrong")
    parquet.write_table(pyarrow.table({"id": ["a"], "n": [12]}), folder / "in.pq")
    folder.run("app.py:square", "in.pq", "-o", "lines", "--format", "jsonl", code=0)
    assert (folder / "lines" / "part-000000.jsonl").read_text() == '{"id":"a","square":144}\n'


def test_files(folder: JobFolder) -> None:
    for name in ("b/two.txt", "b/c/three.txt", "one.txt", ".hidden", "b/with a space.txt"):
        path = folder / "pictures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    folder.code("def size(path): return {'bytes': os.path.getsize(path), 'absolute': os.path.isabs(path)}")
    folder.run("app.py:size", "pictures", "-o", "out", "--format", "jsonl", code=0)
    assert {identity: row["bytes"] for identity, row in folder.rows().items()} == {
        "b/two.txt": 9,
        "b/c/three.txt": 13,
        "one.txt": 7,
        "b/with a space.txt": 18,
    }
    assert all(row["absolute"] for row in folder.rows().values())
    folder.out = folder / "by pattern"
    folder.run("app.py:size", "pictures/*/*.txt", "-o", "by pattern", "--format", "jsonl", code=0)
    assert sorted(row["bytes"] for row in folder.rows().values()) == [9, 18]


def test_a_dataset_and_a_class_made_once_per_worker(folder: JobFolder) -> None:
    folder.code(
        """
        class Numbers:
            def __init__(self, count): self.count = count
            def __len__(self): return self.count
            def __getitem__(self, index): return {"n": index}
        def data(): return Numbers(20)

        class Model:
            def __init__(self):
                trace("made", {"id": "model"})
                self.calls = 0
            def __call__(self, row):
                self.calls += 1
                return {"square": row["n"] ** 2, "calls": self.calls, "worker": os.getpid()}
        """
    )
    line = ["app.py:Model", "app.py:data", "-o", "out", "--format", "jsonl", "--chunk-size", "5", "--workers", "2"]
    folder.run(*line, code=0)
    rows = folder.rows()
    assert {identity: row["square"] for identity, row in rows.items()} == {f"data:{n}": n * n for n in range(20)}
    workers = {row["worker"] for row in rows.values()}
    assert len(folder.trace("made")) <= 2
    for worker in workers:
        assert sorted(row["calls"] for row in rows.values() if row["worker"] == worker) == list(
            range(1, sum(row["worker"] == worker for row in rows.values()) + 1)
        )


def test_preprocess_and_column(folder: JobFolder) -> None:
    folder.jsonl([{"id": f"i{n}", "text": "x" * n} for n in range(6)])
    folder.code(
        """
        def before(text): return len(text)
        def model(lengths): return [length + 0.5 for length in lengths]
        def after(result): return {"double": result * 2}
        """
    )
    line = ["app.py:model", "in.jsonl", "-o", "out", "--column", "text", "--batch-size", "4"]
    folder.run(*line, "--preprocess", "app.py:before", "--postprocess", "app.py:after", code=0)
    assert folder.rows() == {f"i{n}": {"id": f"i{n}", "double": 2 * n + 1.0} for n in range(6)}


VECTORS = [[float(n)] * (1 + n * 7 % 5) for n in range(20)]


class Sums(torch.nn.Module):
    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        # What the padding must not change, and the lengths.
        return torch.stack([x.sum(1), lengths.to(x.dtype)], 1)


class Doubles(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@pytest.mark.parametrize("collate", ["pad", "bucket"])
def test_torchscript_on_padded_batches(folder: JobFolder, collate: str) -> None:
    torch.jit.save(torch.jit.script(Sums()), folder / "model.ts")
    folder.jsonl([{"id": f"i{n}", "x": vector} for n, vector in enumerate(VECTORS)])
    line = ["model.ts", "in.jsonl", "-o", "out", "--column", "x", "--batch-size", "3", "--collate", collate]
    folder.run(*line, code=0)
    assert {identity: row["result"] for identity, row in folder.rows().items()} == {
        f"i{n}": [sum(vector), len(vector)] for n, vector in enumerate(VECTORS)
    }
    # In the order of the input, also if batches were made by length.
    assert [row["id"] for path in sorted(folder.out.glob("part-*")) for row in rows_of(path)] == [
        f"i{n}" for n in range(len(VECTORS))
    ]
    ended = folder.run("-o", "out", "--only", "i4", "--inline", code=0)
    assert json.loads(ended.out) == folder.rows()["i4"]


def test_torchscript_on_stacked_batches(folder: JobFolder) -> None:
    torch.jit.save(torch.jit.script(Doubles()), folder / "model.ts")
    # One item has another shape: it makes a call fail, and has its own alone.
    rows = [{"id": n, "x": [n, n + 1] if n != 5 else [1, 2, 3]} for n in range(9)]
    folder.jsonl(rows)
    line = ["model.ts", "in.jsonl", "-o", "out", "--column", "x", "--batch-size", "4", "--collate", "stack"]
    folder.run(*line, code=0)
    assert {row["id"]: row["result"] for row in folder.rows().values()} == {
        row["id"]: [2 * x for x in row["x"]] for row in rows  # type: ignore[attr-defined]
    }


def test_a_package(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "triples_of_batch.py").write_text(
        "import torch\nclass Triples(torch.nn.Module):\n    def forward(self, x):\n        return x * 3\n"
    )
    monkeypatch.syspath_prepend(str(folder.path))
    triples = importlib.import_module("triples_of_batch")
    with PackageExporter(folder / "model.pt") as exporter:
        exporter.extern("torch.**")
        exporter.intern("triples_of_batch")
        exporter.save_pickle("model", "model.pkl", triples.Triples())
    # The workers must have it from the package.
    (folder / "triples_of_batch.py").unlink()
    folder.jsonl([{"id": f"i{n}", "x": [n, n]} for n in range(6)])
    line = ["model.pt:model/model.pkl", "in.jsonl", "-o", "out", "--column", "x", "--batch-size", "2"]
    folder.run(*line, "--collate", "stack", code=0)
    assert {identity: row["result"] for identity, row in folder.rows().items()} == {
        f"i{n}": [3 * n, 3 * n] for n in range(6)
    }
    assert "there is no file missing.pt" in folder.run("missing.pt:model/model.pkl", *line[1:], code=1).err
    assert "FILE:MODULE/RESOURCE" in folder.run("model.pt:model.pkl", *line[1:], code=1).err


def test_folders_and_patterns_of_tables_are_their_rows(folder: JobFolder) -> None:
    (folder / "in" / "more").mkdir(parents=True)
    for number, name in enumerate(("a.parquet", "more/b.parquet")):
        parquet.write_table(pyarrow.table({"id": [f"i{number}"], "n": [number]}), folder / "in" / name)
    (folder / "in" / "_SUCCESS").write_text("")
    folder.run("app.py:square", "in", "-o", "out", code=0)
    assert folder.rows() == squares(2)
    (folder / "in" / "year=2026").mkdir()
    (folder / "in" / "a.parquet").rename(folder / "in" / "year=2026" / "a.parquet")
    assert "give them in jobs of their own" in folder.run("app.py:square", "in", "-o", "hive", code=1).err
    (folder / "in" / "more").rename(folder / "in" / "year=2025")
    folder.code("def year(row): return {'year': row['year'], 'n': row['n']}")
    for inputs in (["in"], ["in/*/*.parquet"], ["in/year=2026/a.parquet", "in/year=2025/b.parquet"]):
        folder.run("app.py:year", *inputs, "-o", "out", "--force", code=0)
        assert sorted((row["year"], row["n"]) for row in folder.rows().values()) == [(2025, 1), (2026, 0)]
    folder.jsonl(numbers(3), "lines-1.jsonl")
    folder.run("app.py:square", "lines-*.jsonl", "-o", "lines", code=0)
    lines = [path.read_text().splitlines() for path in (folder / "lines").glob("part-*.jsonl")]
    assert sum(map(len, lines)) == 3


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["a.avro"], "a.avro is of a kind whose rows are not read"),
        (["a.jsonl", "a.csv.gz"], "is a table, and not all inputs are of its kind"),
        (["a.jsonl", "b.parquet"], "a.jsonl is a table, and not all inputs are of its kind"),
        (["mixed"], "b.jsonl is a table beside other files"),
        (["a.TXT.GZ"], "a.TXT.GZ is of a kind whose rows are not read"),
    ],
)
def test_a_table_is_no_path_unless_that_is_meant(folder: JobFolder, names: list[str], reason: str) -> None:
    folder.code("def name(path): return {'name': os.path.basename(path)}")
    (folder / "mixed").mkdir()
    for name in ("a.avro", "a.jsonl", "b.parquet", "a.csv.gz", "a.TXT.GZ", "mixed/a.txt", "mixed/b.jsonl"):
        (folder / name).write_text("{}\n")
    line = ["app.py:name", *names, "-o", "out"]
    assert reason in folder.run(*line, code=1).err
    folder.run(*line, "--files", "--format", "jsonl", code=0)
    expected = {"a.txt", "b.jsonl"} if names == ["mixed"] else set(names)
    assert {row["name"] for row in folder.rows().values()} == expected


def test_tables_of_other_programs(folder: JobFolder) -> None:
    (folder / "in.csv.gz").write_bytes(gzip.compress(b"id,n\n" + b"".join(b"i%d,%d\n" % (n, n) for n in range(20))))
    (folder / "in.json").write_text(json.dumps([{"id": f"i{n}", "n": n} for n in range(20)], indent=1))
    with tarfile.open(folder / "in.tar", "w") as tar:
        for n in range(20):
            member = tarfile.TarInfo(f"i{n}.n")
            member.size = len(str(n))
            tar.addfile(member, io.BytesIO(str(n).encode()))
    folder.code("def square(row): return {'square': int(row['n']) ** 2}")
    for name in ("in.csv.gz", "in.json", "in.tar"):
        line = ["app.py:square", name, "-o", "out", "--chunk-size", "3", "--workers", "2", "--force"]
        folder.run(*line, code=0)
        assert folder.rows() == squares(20)
        one = folder.run("-o", "out", "--only", "i7", "--inline", code=0)
        assert json.loads(one.out) == {"id": "i7", "square": 49}


def test_an_output_in_the_folder_of_the_inputs_is_refused(folder: JobFolder) -> None:
    (folder / "in").mkdir()
    (folder / "in" / "a.txt").write_text("")
    assert "lies in the input folder in" in folder.run("app.py:square", "in", "-o", "in/out", code=1).err
    assert [path.name for path in (folder / "in").iterdir()] == ["a.txt"]


def test_a_wrong_number_of_results_is_not_repaired_by_smaller_calls(folder: JobFolder) -> None:
    folder.code("def pair(rows): return ([row['n'] for row in rows], [row['n'] for row in rows])")
    folder.jsonl(numbers(12))
    line = ["app.py:pair", "in.jsonl", "-o", "out", "--batch-size", "4", "--workers", "1"]
    folder.run(*line, "--chunk-size", "6", "--max-failures", "100%", code=3)
    # Calls of 4 and of 2: the latter can't be told from right ones.
    assert len(folder.quarantine()) == 8
    assert {row["message"] for row in folder.quarantine().values()} == {"the model returned 2 results for 4 items"}
    # Then each call has a wrong number.
    folder.jsonl(numbers(40))
    ended = folder.run(*line, "--chunk-size", "8", "--force", code=1)
    assert "items failed alike, in model" in ended.err and "2 results for 4 items" in ended.err


def test_a_part_that_no_plan_names_is_refused(folder: JobFolder) -> None:
    folder.jsonl(numbers(8))
    line = ["app.py:square", "in.jsonl", "-o", "out", "--chunk-size", "4"]
    folder.run(*line, code=0)
    foreign = folder.out / "part-000017.jsonl"
    foreign.write_bytes((folder.out / "part-000001.jsonl").read_bytes())
    for command in (line, ["retry", "out"]):
        assert "part-000017.jsonl is a part that no plan in the journal names" in folder.run(*command, code=1).err
    foreign.unlink()
    folder.run(*line, code=0)


def test_a_worker_that_items_have_used_up_is_replaced(folder: JobFolder) -> None:
    folder.code("import threading, resource\nkept = []\ndef leak(row):\n    kept.append(open('/dev/null'))\n    return row['n']")
    folder.jsonl(numbers(200))
    line = ["app.py:leak", "in.jsonl", "-o", "out", "--workers", "1", "--chunk-size", "100"]
    folder.run(*line, code=0, environment={"ISOPOOL_WORKER_FILES": "96"})
    assert {int(identity[1:]) for identity in folder.rows()} == set(range(200))
