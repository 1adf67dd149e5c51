# SPDX-License-Identifier: BSD-3-Clause
"""Hashes by which the driver notices that a job is not the one that it resumes."""

import hashlib
import os
from collections.abc import Sequence

from isopool_batch import schema
from isopool_batch.job import Callee, Job, digest
from isopool_batch.sources import Stamp, changed, opened, stamp_of, unreadable

# A changed table of many gigabytes is recognized by its size and these bytes at its begin, middle and end.
SAMPLE = 64 * 1024


def of_model(job: Job) -> str:
    """The bytes of each file that decides what is computed; paths don't count, so a job can be moved."""
    files = [job.model_file, *(each.path if each else "" for each in (job.preprocess, job.postprocess))]
    return digest([of_bytes(path) if path else "" for path in files])


def of_arguments(job: Job) -> str:
    """What decides the results besides the files."""
    arguments = {
        "names": [_name(each) for each in (job.model, job.preprocess, job.postprocess)],
        "column": job.column,
        "batch_size": job.batch_size,
        "collate": job.collate,
        "format": job.format,
    }
    if job.schema:
        arguments["schema"] = list(schema.given(job.schema).items())
    return digest(arguments)


def of_bytes(path: str) -> str:
    try:
        with opened(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(path, error) from None


def of_samples(paths: Sequence[str], names: Sequence[str]) -> str:
    """Name, size and samples of each file."""
    files = []
    for path, name in zip(paths, names, strict=True):
        try:
            with opened(path) as file:
                size = os.fstat(file.fileno()).st_size
                hashed = hashlib.sha256()
                for offset in (0, (size - SAMPLE) // 2, size - SAMPLE):
                    file.seek(max(offset, 0))
                    hashed.update(file.read(SAMPLE))
        except OSError as error:
            raise unreadable(path, error) from None
        files.append([name, size, hashed.hexdigest()])
    return digest(files)


class Samples:
    """Whether files still have the contents whose of_samples([path], [""]) is known. Cheap if nothing was written."""

    def __init__(self) -> None:
        self._right: dict[str, Stamp] = {}

    def change(self, path: str, digest: str) -> str:
        """Empty, or that the file has changed."""
        stamp = stamp_of(path)
        if stamp is not None and stamp == self._right.get(path):
            return ""
        if stamp is None or of_samples([path], [""]) != digest:
            return changed(path)
        self._right[path] = stamp
        return ""


def _name(callee: Callee | None) -> str:
    return callee.name if callee else ""
