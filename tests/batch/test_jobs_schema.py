# SPDX-License-Identifier: BSD-3-Clause
"""All Parquet parts of a job have the same columns, whichever worker is the fastest, and whichever run writes them."""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from batch_command import JobFolder, job_folder, wait_until

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
dataset = pytest.importorskip("pyarrow.dataset")
duckdb = pytest.importorskip("duckdb")

# An item has its result, or the error "wrong". "gate" waits for the FIFO of that name.
CODE = """
def give(row):
    gate = row.get("gate")
    if gate:
        open(os.path.join(HERE, gate)).close()
    if row.get("wrong"):
        raise ValueError("wrong")
    return row["result"]
"""


@pytest.fixture
def jobs(tmp_path: pathlib.Path) -> Iterator[JobFolder]:
    with job_folder(tmp_path) as folder:
        folder.code(CODE)
        yield folder


def line(*more: str, out: str = "out") -> list[str]:
    return ["app.py:give", "in.jsonl", "-o", out, "--format", "parquet", "--retries", "0", *more]


def types(jobs: JobFolder) -> set[str]:
    """The schemas of the parts: one, or there are several."""
    return {str(parquet.read_schema(part)) for part in jobs.out.glob("part-*.parquet")}


def results(jobs: JobFolder) -> dict[Any, Any]:
    rows = dataset.dataset(sorted(map(str, jobs.out.glob("part-*.parquet")))).to_table().to_pylist()
    assert duckdb.sql(f"SELECT count(*) FROM '{jobs.out}/part-*.parquet'").fetchall() == [(len(rows),)]
    return {row["id"]: row["result"] for row in rows}


def inputs(*results: Any, **more: Any) -> list[dict[str, Any]]:
    return [{"id": number, "result": {"result": value}} | more for number, value in enumerate(results)]


def test_a_score_that_is_whole_at_first_is_a_float_in_all_parts(jobs: JobFolder) -> None:
    jobs.jsonl(inputs(0, 1, 1, 0, 0, 0.7, 1, 0, 0.25))
    jobs.run(*line("--chunk-size", "3"), code=0)
    assert len(types(jobs)) == 1
    assert results(jobs) == dict(enumerate([0.0, 1.0, 1.0, 0.0, 0.0, 0.7, 1.0, 0.0, 0.25]))


def test_the_fastest_worker_does_not_decide(jobs: JobFolder) -> None:
    values = [0, 1, 1, 2, 3, 0.5, 4, 5, 6, 7]
    rows = inputs(*values)
    # The chunk of the plan's middle, which has the float, ends last.
    rows[5]["gate"] = "gates/5"
    jobs.jsonl(rows)
    jobs.close_gates(["5"])
    running = jobs.start(*line("--chunk-size", "2", "--workers", "2", "--json"))
    # All others are computed, and none of their parts is there.
    work = jobs.job / "work"
    wait_until(lambda: work.exists() and len(list(work.glob("*.spill"))) == 5, "all chunks")
    assert jobs.parts() == {}
    jobs.open_gate("5")
    assert running.wait().code == 0
    assert len(types(jobs)) == 1 and len(jobs.parts()) == 5
    assert results(jobs) == dict(enumerate(map(float, values)))
    assert jobs.leftovers() == []


def test_a_later_result_of_another_type_is_set_aside_with_both_types(jobs: JobFolder) -> None:
    # Of 10 chunks with 40 items each, the numbers 0, 5 and 9 decide.
    rows = inputs(*range(400))
    rows[90]["result"] = {"result": 0.5}
    rows[91]["result"] = {"result": 1, "late": True}
    jobs.jsonl(rows)
    jobs.run(*line("--chunk-size", "40"), code=3)
    assert len(types(jobs)) == 1
    assert results(jobs) == {n: n for n in range(400) if n not in (90, 91)}
    aside = jobs.quarantine()
    assert aside["90"]["message"] == (
        "column 'result' has the type int64, and the value of this item is 0.5 (double): a value of class float"
    )
    assert aside["91"]["message"] == (
        "the schema of the job has no column 'late', and the value of this item is True (bool)"
    )
    # The types stay in a retry.
    jobs.code("def give(row): return {'result': 7 if row['id'] == 90 else 0.5}")
    jobs.run("retry", "out", code=3)
    assert len(types(jobs)) == 1
    assert results(jobs) == {n: n for n in range(400) if n not in (90, 91)} | {90: 7}
    assert set(jobs.quarantine()) == {"91"}


def test_values_that_fit_into_no_column_together_end_with_all_others(jobs: JobFolder) -> None:
    jobs.jsonl(inputs([], [1], ["a"], [2]))
    jobs.run(*line(), code=3)
    assert results(jobs) == {0: [], 1: [1], 3: [2]}
    assert "'a'" in jobs.quarantine()["2"]["message"]


def test_chunks_without_results_do_not_decide(jobs: JobFolder) -> None:
    rows = inputs(*range(7))
    for number in (0, 3, 6, 1):
        rows[number]["wrong"] = True
    jobs.jsonl(rows)
    jobs.run(*line("--chunk-size", "1"), code=3)
    assert results(jobs) == {2: 2, 4: 4, 5: 5}
    for row in rows:
        row["wrong"] = True
    jobs.jsonl(rows, "none.jsonl")
    jobs.run("app.py:give", "none.jsonl", *line("--chunk-size", "1", out="none")[2:], code=3)
    assert not list((jobs / "none").glob("part-*"))
    jobs.code("def give(row): return {'result': 1.5}")
    jobs.run("retry", "none", code=0)
    jobs.out = jobs / "none"
    assert results(jobs) == {n: 1.5 for n in range(7)}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_shards_write_parts_of_the_same_types(jobs: JobFolder, order: tuple[int, ...]) -> None:
    jobs.jsonl(inputs(*([n, n + 0.5][n % 2] for n in range(12))))
    for shard in order:
        jobs.run(*line("--chunk-size", "2", "--shard", f"{shard}/3"), code=0)
    assert len(types(jobs)) == 1 and len(results(jobs)) == 12


def test_a_given_schema_is_that_of_the_parts(jobs: JobFolder) -> None:
    given = pyarrow.schema([("id", pyarrow.int64()), ("result", pyarrow.float64()), ("note", pyarrow.string())])
    parquet.write_table(given.empty_table(), jobs / "types.parquet")
    jobs.jsonl(inputs(1, 2, 3, 4))
    jobs.run(*line("--schema", "types.parquet", "--chunk-size", "2"), code=0)
    assert {part.name: parquet.read_schema(part) for part in jobs.out.glob("part-*")} == dict.fromkeys(
        ("part-000000.parquet", "part-000001.parquet"), given
    )
    assert results(jobs) == {n: n + 1.0 for n in range(4)}
    refused = jobs.run(*line("--chunk-size", "2"), code=1)
    assert "differs in the arguments" in refused.err
    for source, reason in (("none.parquet", "there is no file"), ("app.py:nothing", "has no function or class")):
        assert reason in jobs.run(*line("--schema", source, out="new"), code=1).err


def test_a_folder_without_its_schema_is_refused_and_left_as_it_is(jobs: JobFolder) -> None:
    jobs.jsonl(inputs(1, 2, 3, 4))
    jobs.run(*line("--chunk-size", "2"), code=0)
    parts = jobs.parts()
    (jobs.job / "schema.json").unlink()
    (jobs.out / "part-000001.parquet").unlink()
    refused = jobs.run(*line("--chunk-size", "2"), code=1)
    assert "schema.json is gone" in refused.err
    assert jobs.parts() == {"part-000000.parquet": parts["part-000000.parquet"]}


def test_another_job_has_its_own_types(jobs: JobFolder) -> None:
    jobs.jsonl(inputs(1, 2, 3))
    jobs.run(*line(), code=0)
    first = json.loads((jobs.job / "schema.json").read_text())
    jobs.jsonl(inputs("a", "b"))
    jobs.run(*line("--force"), code=0)
    assert results(jobs) == {0: "a", 1: "b"}
    assert json.loads((jobs.job / "schema.json").read_text())["job"] != first["job"]


def test_readers_of_the_folder_find_the_results_and_nothing_else(jobs: JobFolder) -> None:
    datasets = pytest.importorskip("datasets")
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    rows = inputs(*range(6))
    rows[2]["wrong"] = True
    jobs.jsonl(rows)
    jobs.run(*line("--chunk-size", "2"), code=3)
    datasets.disable_progress_bars()
    cache = str(jobs / "cache")
    found = {
        "pyarrow": dataset.dataset(jobs.out).to_table().num_rows,
        "pandas": len(pandas.read_parquet(jobs.out)),
        "Polars": len(polars.read_parquet(jobs.out / "*.parquet")),
        "DuckDB": len(duckdb.sql(f"SELECT * FROM '{jobs.out}/**/*.parquet'").fetchall()),
        "datasets": len(datasets.load_dataset(str(jobs.out), split="train", cache_dir=cache)),
        "its Parquet": len(datasets.load_dataset("parquet", data_dir=str(jobs.out), split="train", cache_dir=cache)),
    }
    assert found == dict.fromkeys(found, 5)
    # The IDs of what was set aside have the type that they have in the inputs.
    assert [row["id"] for row in map(json.loads, (jobs.job / "quarantine.jsonl").read_text().splitlines())] == [2]
    jobs.run("-o", "out", "--only", "2", "--inline", code=1)
