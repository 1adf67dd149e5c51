# SPDX-License-Identifier: BSD-3-Clause
"""One item of a job in this process alone: no pool, no output folder. For gdb, pdb and breakpoint().

    python -m isopool_batch.inline_run FOLDER JOB PLACE

FOLDER has this package and is removed at the end; JOB is the job of calls.py; PLACE is {"id": ID, "chunk": chunk or null, "item":
its index in the chunk or null}: without a chunk the inputs are searched for the ID. Prints the item's row. Exceptions
of the model are not caught. The driver starts it: batch/runner/inline_run.cc.
"""

import atexit
import contextlib
import json
import shutil
import sys
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


def main(folder: str, job_text: str, place_text: str) -> int:
    # At the end: modules are imported when they are needed.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
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
    """A model's file, by torch's own loaders."""
    torch = need("torch", "a stored model")
    if model["name"]:
        module, _, resource = model["name"].partition("/")
        return torch.package.PackageImporter(model["file"]).load_pickle(module, resource)  # type: ignore[no-any-return]
    try:
        return torch.jit.load(model["file"])  # type: ignore[no-any-return]
    except RuntimeError:
        return torch.export.load(model["file"]).module()  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
