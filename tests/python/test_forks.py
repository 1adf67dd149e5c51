# SPDX-License-Identifier: BSD-3-Clause
"""Processes that a Python program forks, which has tensors in memory shared with workers."""

import os
from collections.abc import Callable, Iterator

import isopool
import pytest
import torch
import torch.utils.data

SIZE = 4096


class AddOne:
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


@pytest.fixture(scope="module")
def pool() -> Iterator[isopool.Pool]:
    with isopool.Pool(1) as made:
        yield made


def exit_code_of_child(act: Callable[[], bool]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if act() else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def test_a_forked_child_has_its_own_tensors(pool: isopool.Pool) -> None:
    x = pool.empty((SIZE,), torch.float32).fill_(1)
    y = pool.load(AddOne())(x)

    def write() -> bool:
        before = bool((x == 1).all()) and bool((y == 2).all())
        x.fill_(7)
        y.fill_(7)
        return before and bool((x == 7).all()) and bool((y == 7).all())

    assert exit_code_of_child(write) == 0
    assert bool((x == 1).all()) and bool((y == 2).all())


class Rows(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self, inputs: torch.Tensor, results: torch.Tensor) -> None:
        self.inputs = inputs
        self.results = results

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> torch.Tensor:
        self.inputs[index] += 0.5  # a data set may change its own copy
        return torch.stack([self.inputs[index] - 0.5, self.results[index]])


def test_data_loader_workers_see_the_tensors_as_they_were(pool: isopool.Pool) -> None:
    inputs = pool.empty((64, SIZE), torch.float32)
    inputs.copy_(torch.arange(64, dtype=torch.float32)[:, None].expand(64, SIZE))
    model = pool.load(AddOne())
    results = model(inputs)
    loader = torch.utils.data.DataLoader(
        Rows(inputs, results), batch_size=8, num_workers=2, multiprocessing_context="fork"
    )
    seen = []
    for batch in loader:
        # The parent goes on while the workers read.
        inputs.fill_(1000)
        results.fill_(1000)
        assert bool((model(pool.empty((64, SIZE), torch.float32).fill_(5)) == 6).all())
        seen.append(batch)
    rows = torch.cat(seen)
    expected = torch.arange(64, dtype=torch.float32)
    assert bool((rows[:, 0] == expected[:, None]).all())
    assert bool((rows[:, 1] == expected[:, None] + 1).all())
    assert bool((inputs == 1000).all())
