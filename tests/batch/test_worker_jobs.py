# SPDX-License-Identifier: BSD-3-Clause
"""The description of a job, and the callables that it names. The other tests of workers make their jobs with it."""

import json
import os
import pathlib
import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

WORKER = pathlib.Path(__file__).resolve().parents[2] / "batch" / "worker"
sys.path.insert(0, str(WORKER))

from isopool_batch import calls  # noqa: E402
from isopool_batch.chunk import Chunk  # noqa: E402


class Folder:
    """A folder with user code, inputs and outputs."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def __truediv__(self, name: str) -> pathlib.Path:
        return self.path / name

    def write(self, name: str, text: str) -> str:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return str(path)

    def clear(self) -> None:
        """Removes the output."""
        shutil.rmtree(self / "out", ignore_errors=True)

    def code(self, text: str) -> str:
        """A Python file with a name of its own: modules stay imported."""
        return self.write(f"code_{os.path.basename(self.path)}_{len(list(self.path.glob('code_*.py')))}.py", text)

    def jsonl(self, rows: list[Any], name: str = "in.jsonl") -> str:
        return self.write(name, "".join(json.dumps(row) + "\n" for row in rows))

    def job(self, code: str, rows: list[Any] | None = None, **more: Any) -> str:
        """The job of function `f` in this code, for these rows as JSON lines."""
        path = self.code(code)
        values: dict[str, Any] = {
            "model": {"kind": "file", "path": path, "name": "f"},
            "input": {"kind": "jsonl", "paths": [self.jsonl(rows)] if rows is not None else []},
            "output": str(self.path / "out"),
            "format": "jsonl",
            "driver": 0,
        }
        for name in ("preprocess", "postprocess"):
            if name in more:
                more[name] = f"{path}:{more[name]}"
        return json.dumps(values | more)

    def part(self, name: str = "part-000000.jsonl") -> bytes:
        return (self.path / "out" / name).read_bytes()

    def rows(self, name: str = "part-000000.jsonl") -> list[Any]:
        return [json.loads(line) for line in self.part(name).splitlines()]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[Folder]:
    before = list(sys.path)
    yield Folder(tmp_path)
    sys.path[:] = before


def refs(job: str, rows: int = 1000) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(calls.planner(job).chunks(rows, 0, 1_000_000))
    return found


def opened(job: str, ref: dict[str, Any] | None = None, **order: Any) -> Chunk:
    values = {"number": 0, "part": f"part-000000.{json.loads(job)['format']}", "skip": []}
    return calls.open_chunk(job, json.dumps(values | {"ref": refs(job)[0] if ref is None else ref} | order))


def part_of(job: str, **order: Any) -> dict[str, Any]:
    """Computes the first chunk in one call, with the types that its rows have; what finish() returned."""
    finished: dict[str, Any] = {}
    for _ in range(2):
        chunk = opened(job, **order)
        assert chunk.run(0, 1000) == ""
        finished = json.loads(chunk.finish())
        if "types" not in finished:
            break
        calls.freeze_schema(job, "a fingerprint", [finished["types"]])
    return finished


def completed(job: str) -> dict[str, int]:
    """The same, if all rows fit."""
    finished = part_of(job)
    assert "misfits" not in finished
    return finished


def failure(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"collate": "heap", "batch_size": 2}, "collate is 'heap'"),
        ({"collate": "stack"}, "set a batch size"),
        ({"batch_size": -1}, "batch size is -1"),
        ({"format": "csv"}, "format is 'csv'"),
        ({"preprocess": "f"}, "names no function"),
        ({"input": {"kind": "jsonl", "paths": []}}, "no input"),
        ({"input": {"kind": "files", "paths": ["/"], "root": "/"}, "column": "text"}, "no columns"),
    ],
)
def test_an_impossible_job_is_refused_with_the_reason(folder: Folder, change: dict[str, Any], reason: str) -> None:
    job = json.dumps(json.loads(folder.job("f = str", [1])) | change)
    with pytest.raises(ValueError, match=reason) as raised:
        calls.planner(job)
    assert "\n" not in str(raised.value)


def test_a_class_is_instantiated_once_per_worker(folder: Folder) -> None:
    job = folder.job(
        """
        made = []
        class f:
            def __init__(self): made.append(1)
            def __call__(self, row): return len(made)
        """,
        [1, 2, 3],
    )
    calls.prepare(job)
    calls.prepare(job)
    completed(job)
    assert [row["result"] for row in folder.rows()] == [1, 1, 1]


def test_a_method_is_called_on_an_instance(folder: Folder) -> None:
    job = folder.job(
        """
        class Model:
            class Inner:
                def __init__(self): self.by = 10
                def times(self, row): return self.by * row
        """,
        [1, 2],
    )
    values = json.loads(job)
    values["model"]["name"] = "Model.Inner.times"
    completed(json.dumps(values))
    assert [row["result"] for row in folder.rows()] == [10, 20]


def test_a_file_can_import_modules_beside_it(folder: Folder) -> None:
    folder.write("sibling_of_the_model.py", "factor = 7\n")
    completed(folder.job("import sibling_of_the_model\ndef f(row): return row * sibling_of_the_model.factor", [6]))
    assert folder.rows()[0]["result"] == 42


def test_a_file_with_the_name_of_an_imported_module_does_not_replace_it(folder: Folder) -> None:
    path = folder.write("json.py", "def f(row): return 'own'\n")
    values = json.loads(folder.job("", [1]))
    values["model"]["path"] = path
    completed(json.dumps(values))
    assert folder.rows()[0]["result"] == "own"
    assert sys.modules["json"] is json


def test_errors_of_user_code_pass_through_prepare(folder: Folder) -> None:
    with pytest.raises(ZeroDivisionError):
        calls.prepare(folder.job("1 / 0", [1]))
    with pytest.raises(AttributeError, match="has no function or class f"):
        calls.prepare(folder.job("", [1]))
    with pytest.raises(TypeError, match="can't be called"):
        calls.prepare(folder.job("f = 3", [1]))


def test_a_pickled_function_runs(folder: Folder) -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    (folder / "model.pkl").write_bytes(cloudpickle.dumps(lambda row: row + 1))
    values = json.loads(folder.job("", [1]))
    values["model"] = {"kind": "pickle", "path": str(folder / "model.pkl")}
    completed(json.dumps(values))
    assert folder.rows()[0]["result"] == 2


def test_an_object_runs_after_it_was_set(folder: Folder) -> None:
    values = json.loads(folder.job("", [1]))
    values["model"] = {"kind": "object"}
    job = json.dumps(values)
    with pytest.raises(ValueError, match="set_model"):
        calls.prepare(job)
    with pytest.raises(TypeError, match="can't be called"):
        calls.set_model(job, 3)
    calls.set_model(job, lambda row: row + 2)
    completed(job)
    assert folder.rows()[0]["result"] == 3


def test_the_driver_does_not_change_the_identity_of_a_job(folder: Folder) -> None:
    from isopool_batch.job import Job

    values = json.loads(folder.job("f = str", [1]))
    first = Job.parse(json.dumps(values | {"driver": 1}))
    assert first.identity == Job.parse(json.dumps(values | {"driver": 2})).identity
    assert first.identity != Job.parse(json.dumps(values | {"column": "text"})).identity


def test_a_missing_package_is_named_with_its_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    from isopool_batch import packages

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"^Parquet needs pyarrow: pip install pyarrow$"):
        packages.pyarrow()


def test_fingerprints_change_with_what_they_stand_for(folder: Folder) -> None:
    values = json.loads(folder.job("f = str", [1]))

    def fingerprints(**more: Any) -> dict[str, str]:
        found: dict[str, str] = json.loads(calls.planner(json.dumps(values | more)).summary())["fingerprint"]
        return found

    first = fingerprints()
    assert fingerprints(driver=99, output="/elsewhere") == first
    assert {name for name, value in fingerprints(batch_size=3).items() if value != first[name]} == {"arguments"}
    pathlib.Path(values["model"]["path"]).write_text("f = int")
    assert {name for name, value in fingerprints().items() if value != first[name]} == {"model"}
    folder.jsonl([2])
    assert fingerprints()["input"] != first["input"]


def test_the_modules_need_no_file_of_their_package(folder: Folder) -> None:
    """As in a worker: each module is registered as text."""
    for path in (WORKER / "isopool_batch").glob("*.py"):
        text = path.read_text()
        assert text.startswith("# SPDX-License-Identifier: BSD-3-Clause\n")
        assert "from ." not in text and "import isopool\n" not in text and "__file__)" not in text
