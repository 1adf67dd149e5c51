# SPDX-License-Identifier: BSD-3-Clause
"""Functions that write to their arguments, or do not: what autograd of the caller makes of it is the same as when the
function runs in its own process."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import isopool
import pytest
import torch

SIZE = 1024

Function = Callable[..., Any]
Arguments = Callable[[torch.Tensor, torch.Tensor], tuple[Any, ...]]
Use = Callable[[Any], None]


def read(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def add_in_place(x: torch.Tensor) -> torch.Tensor:
    return x.add_(1)


def write_twice(x: torch.Tensor) -> torch.Tensor:
    x.mul_(3)
    x.zero_()
    return x + 1


def write_an_element(x: torch.Tensor) -> torch.Tensor:
    x[0] = 5
    return x.sum()


def write_a_view(x: torch.Tensor) -> torch.Tensor:
    x.view(-1)[3:7].fill_(8)
    return x.sum()


def write_detached(x: torch.Tensor) -> torch.Tensor:
    x.detach().mul_(2)
    return x.sum()


def write_data(x: torch.Tensor) -> torch.Tensor:
    x.data.mul_(2)
    return x.sum()


def write_by_numpy(x: torch.Tensor) -> torch.Tensor:
    x.numpy()[...] = 4
    return x.sum()


def write_without_grad(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        x.add_(1)
    return x.sum()


def write_in_inference_mode(x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        x.add_(1)
    return x.sum()


def read_two(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * y


def write_first(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.copy_(y)


def write_second(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.add(x, 1, out=y)


def write_both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    torch._foreach_add_([x, y], 1)
    return x + y


def write_and_fail(x: torch.Tensor) -> None:
    x.add_(1)
    raise LookupError("written")


def write_and_return_no_value(x: torch.Tensor) -> object:
    x.add_(1)
    return torch.eye(3).to_sparse()


def give_back(x: torch.Tensor) -> torch.Tensor:
    return x


def give_views(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.view(-1), x[:10]


def give_data(x: torch.Tensor) -> torch.Tensor:
    return x.data


def give_two_of_one(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    result = x * 2
    return result, result.view(-1)


def write_listed(xs: list[torch.Tensor]) -> torch.Tensor:
    xs[1].add_(1)
    return xs[0] + xs[1]


def own_autograd(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor | None:
    w = torch.ones_like(x, requires_grad=True)
    product = (w * x).sum()
    y.fill_(9)
    product.backward()
    return w.grad


ONE: dict[str, Arguments] = {
    "x": lambda x, y: (x,),
    "a view of x": lambda x, y: (x.view(2, -1),),
    "part of x": lambda x, y: (x[16:64],),
    "x.detach()": lambda x, y: (x.detach(),),
    "x.data": lambda x, y: (x.data,),
}
TWO: dict[str, Arguments] = {
    "x, y": lambda x, y: (x, y),
    "x, x": lambda x, y: (x, x),
    "x, its view": lambda x, y: (x, x.view(-1)),
    "x, x.detach()": lambda x, y: (x, x.detach()),
    "x, x.data": lambda x, y: (x, x.data),
    "x.data, x": lambda x, y: (x.data, x),
}
LISTS: dict[str, Arguments] = {
    "[x, y]": lambda x, y: ([x, y],),
    "[y, x]": lambda x, y: ([y, x],),
    "[x, x.detach()]": lambda x, y: ([x, x.detach()],),
}
OF_ONE = [
    read,
    add_in_place,
    write_twice,
    write_an_element,
    write_a_view,
    write_detached,
    write_data,
    write_by_numpy,
    write_without_grad,
    write_in_inference_mode,
    write_and_fail,
    write_and_return_no_value,
    give_back,
    give_views,
    give_data,
    give_two_of_one,
]
OF_TWO = [read_two, write_first, write_second, write_both, own_autograd]
OF_LISTS = [write_listed]
ALL: list[Function] = [*OF_ONE, *OF_TWO, *OF_LISTS]

CASES = [
    *itertools.product(OF_ONE, ONE.items()),
    *itertools.product(OF_TWO, TWO.items()),
    *itertools.product(OF_LISTS, LISTS.items()),
]


def nothing(result: Any) -> None:
    pass


def write_result(result: Any) -> None:
    """Writes to the first tensor of the result."""
    tensor = result[0] if isinstance(result, tuple) else result
    tensor.detach().add_(1)


class Product:
    """A product whose factor autograd saves for the gradient of the other factor."""

    def __init__(self, factor: torch.Tensor) -> None:
        self.weight = torch.ones_like(factor, requires_grad=True)
        self.sum = (self.weight * factor).sum()

    def outcome(self) -> Any:
        try:
            self.sum.backward()
        except RuntimeError as error:
            return "modified by an inplace operation" in str(error) or str(error)
        assert self.weight.grad is not None
        return self.weight.grad.tolist()


def kind_of(error: BaseException) -> str:
    text = str(error)
    if "modified by an inplace operation" in text:
        return "autograd's refusal"
    return "LookupError" if "LookupError" in text or isinstance(error, LookupError) else text


def outcome(call: Function, make: Arguments, use: Use, empty: Callable[[], torch.Tensor]) -> dict[str, Any]:
    """All that a caller can see of the call: its result, its arguments, their versions, its autograd."""
    x, y = empty().fill_(2), empty().fill_(3)
    seen: dict[str, Any] = {}
    arguments = make(x, y)
    of_x, of_y = Product(x), Product(y)
    versions = x._version, y._version
    try:
        result = call(*arguments)
        of_result = [
            Product(each.detach())
            for each in (result if isinstance(result, tuple) else (result,))
            if each is not None and each.layout is torch.strided
        ]
        use(result)
        seen["of the result"] = [each.outcome() for each in of_result]
    except (RuntimeError, LookupError, isopool.Error) as error:
        seen["error"] = kind_of(error)
    seen["x"], seen["y"] = x.tolist(), y.tolist()
    seen["versions"] = x._version - versions[0], y._version - versions[1]
    seen["of x"], seen["of y"] = of_x.outcome(), of_y.outcome()
    return seen


@pytest.fixture(scope="module")
def pool() -> Iterator[isopool.Pool]:
    with isopool.Pool(1) as made:
        yield made


class Functions:
    def __call__(self, index: int, *arguments: Any) -> Any:
        return ALL[index](*arguments)


@pytest.fixture(scope="module")
def model(pool: isopool.Pool) -> isopool.Model:
    return pool.load(Functions())


@pytest.mark.parametrize("use", [nothing, write_result])
@pytest.mark.parametrize(("function", "named"), CASES, ids=lambda each: getattr(each, "__name__", None) or each[0])
def test_the_callers_autograd_sees_the_same(
    pool: isopool.Pool, model: isopool.Model, function: Function, named: tuple[str, Arguments], use: Use
) -> None:
    make = named[1]
    here = outcome(function, make, use, lambda: torch.empty(SIZE))
    index = ALL.index(function)
    there = outcome(
        lambda *arguments: model(index, *arguments),
        make,
        use,
        lambda: pool.empty((SIZE,), torch.float32),
    )
    if function is write_and_return_no_value:
        # A sparse tensor can't cross; what was written before counts nevertheless.
        for seen in (here, there):
            seen.pop("error", None)
            seen.pop("of the result", None)
    assert there == here


def test_each_item_of_a_stream_counts(pool: isopool.Pool) -> None:
    class Generating:
        def __call__(self, x: torch.Tensor, count: int) -> Iterator[int]:
            for each in range(count):
                x.fill_(each)
                yield each

    def seen(stream: Iterator[int], x: torch.Tensor) -> list[Any]:
        outcomes: list[Any] = []
        for _ in range(3):
            product = Product(x)
            outcomes += [next(stream), x._version, product.outcome()]
        return outcomes

    x = torch.empty(SIZE)
    shared = pool.empty((SIZE,), torch.float32)
    stream = pool.load(Generating()).stream(shared, 3)
    assert seen(stream, shared) == seen(Generating()(x, 3), x)
