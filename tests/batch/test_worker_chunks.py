# SPDX-License-Identifier: BSD-3-Clause
"""Calls of a chunk: batches, collation, failures, and items that are left out."""

import json
from typing import Any

import pytest
from test_worker_jobs import Folder, completed, failure, folder, opened, refs  # noqa: F401

torch = pytest.importorskip("torch")


def results(folder: Folder) -> list[Any]:
    return [row["result"] for row in folder.rows()]


def test_an_item_goes_through_preprocess_model_and_postprocess(folder: Folder) -> None:
    job = folder.job(
        """
        def before(row): return row["text"].upper()
        def f(text): return text + "!"
        def after(text): return {"text": text, "length": len(text)}
        """,
        [{"id": 5, "text": "abc"}, {"text": "d"}],
        preprocess="before",
        postprocess="after",
    )
    assert completed(job)["rows"] == 2
    assert folder.rows() == [
        {"id": 5, "text": "ABC!", "length": 4},
        {"id": "in.jsonl:1", "text": "D!", "length": 2},
    ]


def test_a_column_is_given_instead_of_the_row(folder: Folder) -> None:
    completed(folder.job("f = len", [{"id": 1, "text": "abc"}, {"id": 2, "text": ""}], column="text"))
    assert folder.rows() == [{"id": 1, "result": 3}, {"id": 2, "result": 0}]


def test_the_model_gets_lists_of_at_most_the_batch_size(folder: Folder) -> None:
    job = folder.job("def f(items): return [(items, x) for x in items]", list(range(5)), batch_size=2)
    completed(job)
    assert results(folder) == [[[0, 1], 0], [[0, 1], 1], [[2, 3], 2], [[2, 3], 3], [[4], 4]]


def test_stacked_items_are_one_tensor(folder: Folder) -> None:
    code = """
        import numpy, torch
        makers = [lambda x: torch.tensor([x, x]), lambda x: numpy.array([x, x]), lambda x: [x, x], lambda x: x]
        def before(x): return makers[x // 10](x)
        def f(batch): return batch.double() + 0.5
        """
    completed(folder.job(code, [1, 2, 3], preprocess="before", batch_size=3, collate="stack"))
    assert results(folder) == [[1.5, 1.5], [2.5, 2.5], [3.5, 3.5]]
    for tens in (1, 2):
        rows = [tens * 10 + 1, tens * 10 + 2]
        folder.clear()
        completed(folder.job(code, rows, preprocess="before", batch_size=3, collate="stack"))
        assert results(folder) == [[x + 0.5, x + 0.5] for x in rows]
    folder.clear()
    completed(folder.job(code, [31, 32], preprocess="before", batch_size=3, collate="stack"))
    assert results(folder) == [31.5, 32.5]


def test_padded_items_come_with_their_lengths(folder: Folder) -> None:
    code = """
        import torch
        def before(lists): return torch.tensor(lists)
        def f(padded, lengths):
            assert torch.is_tensor(lengths)
            return {"shape": [tuple(padded.shape)] * len(padded), "length": lengths, "sum": padded.flatten(1).sum(1)}
        """
    more = {"preprocess": "before", "batch_size": 2, "collate": "pad"}
    completed(folder.job(code, [[1], [1, 2, 3], [4, 4]], **more))
    assert [list(row.values())[1:] for row in folder.rows()] == [[[2, 3], 1, 1], [[2, 3], 3, 6], [[1, 2], 2, 8]]
    folder.clear()
    completed(folder.job(code, [[[1, 1]], [[2, 2], [3, 3]]], **more))
    assert [list(row.values())[1:] for row in folder.rows()] == [[[2, 2, 2], 1, 2], [[2, 2, 2], 2, 10]]


def test_buckets_have_items_of_similar_length_and_results_keep_the_order(folder: Folder) -> None:
    rows = [[1] * length for length in (5, 1, 4, 2, 5, 1)]
    job = folder.job(
        "def f(padded, lengths): return [[int(n), padded.shape[1]] for n in lengths]",
        rows,
        batch_size=2,
        collate="bucket",
    )
    completed(job)
    assert results(folder) == [[5, 5], [1, 1], [4, 4], [2, 4], [5, 5], [1, 1]]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("[1]", "the model returned 1 results for 3 items"),
        ("torch.zeros(4, 2)", "the model returned 4 results for 3 items"),
        ("torch.tensor(1)", "the model returned a single number for 3 items"),
        ("{'a': [1, 2, 3], 'b': numpy.zeros(2)}", "'b': the model returned 2 results for 3 items"),
        ("{'a': 1}", "'a': the model returned an object of type int for 3 items"),
        ("'abc'", "the model returned an object of type str for 3 items"),
    ],
)
def test_a_result_of_another_length_is_refused(folder: Folder, result: str, message: str) -> None:
    job = folder.job(f"import numpy, torch\ndef f(items): return {result}", [1, 2, 3], batch_size=3)
    found = failure(opened(job).run(0, 3))
    assert found["message"].startswith(message)
    assert (found["phase"], found["item"]) == ("model", None)


@pytest.mark.parametrize(
    "result",
    [
        "[10 * x for x in items]",
        "tuple(10 * x for x in items)",
        "torch.tensor(items, requires_grad=False) * 10",
        "numpy.array(items) * 10",
        "{'result': torch.tensor(items) * 10}",
    ],
)
def test_each_kind_of_batch_result_is_split(folder: Folder, result: str) -> None:
    completed(folder.job(f"import numpy, torch\ndef f(items): return {result}", [1, 2, 3], batch_size=2))
    assert results(folder) == [10, 20, 30]


def test_models_run_without_gradients(folder: Folder) -> None:
    completed(folder.job("import torch\ndef f(row): return torch.is_inference_mode_enabled()", [1]))
    assert results(folder) == [True]


def test_results_in_memory_that_the_model_uses_again_are_kept(folder: Folder) -> None:
    code = "import torch\nbuffer = torch.zeros(2)\ndef f(x): return buffer.fill_(x)"
    completed(folder.job(code, [1, 2, 3]))
    assert results(folder) == [[1, 1], [2, 2], [3, 3]]


@pytest.mark.parametrize(
    ("phase", "code"),
    [
        ("preprocess", "def before(x): return 1 // x\ndef f(x): return x\ndef after(x): return x"),
        ("model", "def before(x): return x\ndef f(x): return 1 // x\ndef after(x): return x"),
        ("postprocess", "def before(x): return x\ndef f(x): return x\ndef after(x): return 1 // x"),
        ("write", "def before(x): return x\ndef f(x): return x\ndef after(x): return x or object()"),
    ],
)
def test_a_failure_names_its_phase_and_item_and_records_nothing(folder: Folder, phase: str, code: str) -> None:
    chunk = opened(folder.job(code, [1, 1, 0, 1], preprocess="before", postprocess="after"))
    found = failure(chunk.run(0, 4))
    assert (found["reason"], found["phase"], found["item"]) == ("raised", phase, 2)
    assert found["type"] == ("TypeError" if phase == "write" else "ZeroDivisionError")
    assert chunk.finished() == "[]"
    assert chunk.run(0, 2) == chunk.run(3, 1) == ""
    assert json.loads(chunk.finish())["rows"] == 3


def test_a_failure_of_a_batch_names_an_item_only_if_it_is_alone(folder: Folder) -> None:
    chunk = opened(folder.job("def f(items): return [1 // x for x in items]", [1, 0, 1], batch_size=3))
    assert failure(chunk.run(0, 3))["item"] is None
    assert failure(chunk.run(1, 1))["item"] == 1


def test_a_traceback_begins_with_the_users_code(folder: Folder) -> None:
    found = failure(
        opened(folder.job("def f(x):\n    return g(x)\ndef g(x):\n    raise ValueError('é')", [1])).run(0, 1)
    )
    assert found["message"] == "é"
    lines = found["traceback"].splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].endswith("in f") and lines[-1] == "ValueError: é"
    assert "isopool_batch" not in found["traceback"]


@pytest.mark.parametrize(
    ("statement", "spoilt"),
    [
        ("raise MemoryError", True),
        ("raise torch.OutOfMemoryError('CUDA out of memory')", True),
        ("raise torch.AcceleratorError('CUDA error: device-side assert triggered')", True),
        ("raise RuntimeError('CUDA error: an illegal memory access was encountered')", True),
        ("raise RuntimeError('mat1 and mat2 shapes cannot be multiplied')", False),
        ("raise ValueError('CUDA error: no')", False),
        ("raise ValueError from torch.AcceleratorError('CUDA error: device-side assert triggered')", True),
    ],
)
def test_errors_that_later_calls_may_get_too_are_marked(folder: Folder, statement: str, spoilt: bool) -> None:
    job = folder.job(f"import torch\ndef f(x): {statement}", [1])
    assert failure(opened(job).run(0, 1))["spoilt"] is spoilt


@pytest.mark.parametrize(
    ("statement", "reason", "kind"),
    [
        ("raise SystemExit(3)", "raised", "SystemExit"),
        ("raise KeyboardInterrupt", "raised", "KeyboardInterrupt"),
        ("raise GeneratorExit", "raised", "GeneratorExit"),
        ("raise Odd", "raised", "{module}.Odd"),
        ("raise OSError(28, 'No space left on device')", "raised", "OSError"),
        ("return f(x)", "raised", "RecursionError"),
        ("raise MemoryError", "memory", "MemoryError"),
        ("raise torch.OutOfMemoryError('CUDA out of memory')", "memory", "torch.OutOfMemoryError"),
        ("return torch.empty(1 << 60)", "memory", "RuntimeError"),
        ("return numpy.empty(1 << 60, numpy.uint8)", "memory", "numpy._core._exceptions._ArrayMemoryError"),
    ],
)
def test_everything_that_user_code_raises_is_a_failure(folder: Folder, statement: str, reason: str, kind: str) -> None:
    job = folder.job(
        f"""
        import numpy, torch
        class Odd(Exception):
            def __str__(self): raise Exception
        def f(x):
            {statement}
        """,
        [1],
    )
    found = failure(opened(job).run(0, 1))
    module = json.loads(job)["model"]["path"].rpartition("/")[2].removesuffix(".py")
    assert (found["reason"], found["type"]) == (reason, kind.format(module=module))


def test_long_and_unencodable_messages_are_made_printable(folder: Folder) -> None:
    text = opened(folder.job(r"def f(x): raise ValueError('\udc80' + 1000000 * 'x')", [1])).run(0, 1)
    assert len(text) < 300_000
    assert failure(text)["message"].startswith(r"\udc80xxx")


def test_an_id_of_the_result_must_be_that_of_the_item(folder: Folder) -> None:
    chunk = opened(
        folder.job("def f(row): return {'id': row['to'], 'x': 1}", [{"id": 5, "to": 5}, {"id": 6, "to": "6"}])
    )
    assert chunk.run(0, 1) == ""
    found = failure(chunk.run(1, 1))
    assert (found["reason"], found["phase"], found["item"]) == ("raised", "postprocess", 1)
    assert "'6'" in found["message"] and "id 6" in found["message"]
    chunk.finish()
    assert folder.rows() == [{"id": 5, "x": 1}]


def test_a_retry_gets_rows_as_they_were(folder: Folder) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"n": [1, 0, 2]}), folder / "in.parquet")
    values = json.loads(folder.job("def f(row): return 2 // row.pop('n')"))
    values["input"] = {"kind": "parquet", "paths": [str(folder / "in.parquet")]}
    chunk = opened(json.dumps(values))
    assert failure(chunk.run(0, 3))["type"] == "ZeroDivisionError"
    assert failure(chunk.run(0, 2))["type"] == "ZeroDivisionError"
    assert chunk.run(0, 1) == chunk.run(2, 1) == ""


def test_quarantined_items_are_left_out(folder: Folder) -> None:
    chunk = opened(folder.job("f = abs", list(range(6))), skip=[1, 4])
    assert chunk.run(0, 6) == ""
    assert chunk.finished() == "[[0, 1], [2, 2], [5, 1]]"
    assert json.loads(chunk.finish())["rows"] == 4
    assert results(folder) == [0, 2, 3, 5]


def test_a_retry_of_the_quarantine_computes_only_these_items(folder: Folder) -> None:
    chunk = opened(folder.job("f = abs", list(range(6))), skip=[4], items=[4, 3, 1, 99])
    assert chunk.run(0, 3) == chunk.run(3, 3) == ""
    chunk.finish()
    assert folder.rows() == [{"id": "in.jsonl:1", "result": 1.0}, {"id": "in.jsonl:3", "result": 3.0}]


def test_recorded_items_are_not_computed_again(folder: Folder) -> None:
    chunk = opened(folder.job("calls = []\ndef f(x):\n    calls.append(x)\n    return len(calls)", [7, 8, 9]))
    assert chunk.run(1, 1) == chunk.run(0, 3) == ""
    chunk.finish()
    assert results(folder) == [2, 1, 3]


def test_a_chunk_without_rows_leaves_the_part_alone(folder: Folder) -> None:
    job = folder.job("f = abs", [1])
    completed(job)
    before = folder.part()
    chunk = opened(job, skip=[0])
    assert chunk.run(0, 1) == ""
    assert json.loads(chunk.finish()) == {"rows": 0, "bytes": 0}
    assert folder.part() == before
    assert list((folder / "out" / "__job__" / "work").iterdir()) == []


def test_finish_reports_the_part_and_answers_again(folder: Folder) -> None:
    chunk = opened(folder.job("f = abs", [1, 2]))
    assert chunk.run(0, 2) == ""
    first = chunk.finish()
    assert json.loads(first) == {"rows": 2, "bytes": len(folder.part())}
    assert chunk.finish() == first


def test_chunks_of_a_plan_are_all_computed(folder: Folder) -> None:
    job = folder.job("f = abs", list(range(10)))
    for number, ref in enumerate(refs(job, 4)):
        chunk = opened(job, ref, number=number, part=f"part-{number:06d}.jsonl")
        assert chunk.run(0, ref["rows"]) == ""
        chunk.finish()
    assert [row["id"] for number in range(3) for row in folder.rows(f"part-{number:06d}.jsonl")] == [
        f"in.jsonl:{i}" for i in range(10)
    ]
