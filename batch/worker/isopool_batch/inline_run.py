# SPDX-License-Identifier: BSD-3-Clause
"""One item of a job in this process alone: no pool, no output folder. For gdb, pdb and breakpoint().

    python -m isopool_batch.inline_run FOLDER JOB PLACE

FOLDER has this package and is removed; JOB is the job of calls.py; PLACE is {"id": ID, "chunk": chunk or null, "item":
its index in the chunk or null}: without a chunk the inputs are searched for the ID. Prints the item's row. Exceptions
of the model are not caught. The driver starts it: batch/runner/inline_run.cc.
"""

import contextlib
import importlib
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

from isopool_batch import models
from isopool_batch.failures import Progress
from isopool_batch.job import Job, Ref
from isopool_batch.packages import need
from isopool_batch.pipeline import Pipeline
from isopool_batch.planner import Planner
from isopool_batch.sinks import write_jsonl
from isopool_batch.sources import source_of

# So many items are searched at a time.
_BLOCK = 5000


def import_all(folder: str) -> None:
    """All of the package now, so that its folder can go: a crash later leaves nothing."""
    for file in os.scandir(os.path.join(folder, "isopool_batch")):
        if file.name.endswith(".py"):
            importlib.import_module(f"isopool_batch.{file.name.removesuffix('.py')}")


def main(folder: str, job_text: str, place_text: str) -> int:
    import_all(folder)
    shutil.rmtree(folder)
    job = Job.parse(job_text)
    place = json.loads(place_text)
    source = source_of(job)
    if place["chunk"] is not None:
        items, index = source.open(place["chunk"]["ref"]), place["item"]
    else:
        for ref in _refs(job):
            items = source.open(ref)
            index = next((i for i in range(ref["rows"]) if str(items.read(i)[0]) == place["id"]), None)
            if index is not None:
                break
        else:
            print(f"isopool batch: the inputs have no item {place['id']}", file=sys.stderr)
            return 1
    model = models.make(job.model) if job.model is not None else _stored_model(json.loads(job_text)["model"])
    pipeline = Pipeline(job, model)
    torch = sys.modules.get("torch")
    with torch.inference_mode() if torch is not None else contextlib.nullcontext():
        rows = pipeline.rows(items, [index], Progress())
    write_jsonl(rows, sys.stdout.buffer)
    return 0


def _refs(job: Job) -> Iterator[Ref]:
    planner = Planner(job)
    first = 0
    while chunks := json.loads(planner.chunks(_BLOCK, first, 1)):
        yield from chunks
        first += 1


def _stored_model(model: dict[str, str]) -> Callable[..., Any]:
    """A model's file, by the loaders of those who define the formats."""
    torch = need("torch", "a stored model")
    file = model["file"]
    if model["name"]:
        module, _, resource = model["name"].partition("/")
        return torch.package.PackageImporter(file).load_pickle(module, resource)  # type: ignore[no-any-return]
    if not zipfile.is_zipfile(file):
        return _onnx_model(file)
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
    if any("/data/aotinductor/" in name for name in names):
        return need("torch._inductor", "a compiled model").aoti_load_package(file)  # type: ignore[no-any-return]
    if any(name.endswith(("/models/model.json", "serialized_exported_program.json")) for name in names):
        return torch.export.load(file).module()  # type: ignore[no-any-return]
    return torch.jit.load(file)  # type: ignore[no-any-return]


def _onnx_model(file: str) -> Callable[..., Any]:
    """Takes and returns tensors, as an ONNX model in a pool does."""
    torch = need("torch", "a stored model")
    session = need("onnxruntime", "an ONNX model").InferenceSession(file, providers=["CPUExecutionProvider"])

    def call(*inputs: Any) -> Any:
        names = [each.name for each in session.get_inputs()]
        outputs = session.run(None, {name: each.numpy() for name, each in zip(names, inputs, strict=True)})
        tensors = tuple(torch.from_numpy(each) for each in outputs)
        return tensors[0] if len(tensors) == 1 else tensors

    return call


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
