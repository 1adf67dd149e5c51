# SPDX-License-Identifier: BSD-3-Clause
"""From items to rows: preprocess, model, postprocess."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from isopool_batch import collate, failures, models, results
from isopool_batch.failures import Progress
from isopool_batch.job import Callee, Job
from isopool_batch.results import Row
from isopool_batch.sources import Items


class Pipeline:
    """The callables of a job. progress, an argument of its methods, always has what runs at the moment."""

    def __init__(self, job: Job, model: Callable[..., Any]) -> None:
        self._model = model
        self._preprocess = _optional(job.preprocess)
        self._postprocess = _optional(job.postprocess)
        self._batch_size = job.batch_size
        self._collate = job.collate

    def rows(self, items: Items, indexes: Sequence[int], progress: Progress) -> list[Row]:
        """The rows of these items, in this order."""
        if self._batch_size == 0:
            return [self._row_of_one(items, index, progress) for index in indexes]
        if self._collate == collate.BUCKET:
            return self._rows_by_length(items, indexes, progress)
        rows: list[Row] = []
        for batch in _batches(indexes, self._batch_size):
            inputs = [self._input(items, index, progress) for index in batch]
            rows += self._rows_of_batch(batch, inputs, progress)
        return rows

    def _row_of_one(self, items: Items, index: int, progress: Progress) -> Row:
        identity, item = self._input(items, index, progress)
        progress.phase = failures.MODEL
        return self._row(index, identity, self._model(item), progress)

    def _rows_by_length(self, items: Items, indexes: Sequence[int], progress: Progress) -> list[Row]:
        """Items of similar length are computed together, which pads least."""
        inputs = {index: self._input(items, index, progress) for index in indexes}
        progress.phase = failures.MODEL
        lengths: dict[int, int] = {}
        for index, (_, item) in inputs.items():
            progress.item = index
            lengths[index] = collate.length(item)
        rows: dict[int, Row] = {}
        for batch in _batches(sorted(indexes, key=lengths.__getitem__), self._batch_size):
            of_batch = self._rows_of_batch(batch, [inputs.pop(index) for index in batch], progress)
            rows.update(zip(batch, of_batch, strict=True))
        return [rows[index] for index in indexes]

    def _input(self, items: Items, index: int, progress: Progress) -> tuple[Any, Any]:
        """The item's ID, and the item as the model gets it."""
        progress.phase, progress.item = failures.READ, index
        identity, item = items.read(index)
        if self._preprocess is not None:
            progress.phase = failures.PREPROCESS
            item = self._preprocess(item)
        return identity, item

    def _rows_of_batch(self, batch: Sequence[int], inputs: list[tuple[Any, Any]], progress: Progress) -> list[Row]:
        progress.phase, progress.item = failures.MODEL, None
        result = self._model(*collate.arguments(self._collate, [item for _, item in inputs]))
        parts = results.split(result, len(batch))
        return [
            self._row(index, identity, part, progress)
            for index, (identity, _), part in zip(batch, inputs, parts, strict=True)
        ]

    def _row(self, index: int, identity: Any, result: Any, progress: Progress) -> Row:
        progress.phase, progress.item = failures.POSTPROCESS, index
        if self._postprocess is not None:
            result = self._postprocess(result)
        results.check_id(identity, result)
        progress.phase = failures.WRITE
        return results.row(identity, result)


def _optional(callee: Callee | None) -> Callable[..., Any] | None:
    return models.make(callee) if callee is not None else None


def _batches(indexes: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for begin in range(0, len(indexes), size):
        yield indexes[begin : begin + size]
