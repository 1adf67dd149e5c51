# SPDX-License-Identifier: BSD-3-Clause
"""What a call does with any Python object: it passes an equal value, or it refuses the object."""

import enum
import math
import random
import string
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import isopool
import numpy
import pytest
import torch
from programs import run_program


@pytest.fixture(scope="module")
def pool() -> Iterator[isopool.Pool]:
    with isopool.Pool(1) as made:
        yield made


@pytest.fixture(scope="module")
def same(pool: isopool.Pool) -> isopool.Model:
    return pool.load(lambda *args, **kwargs: args[0] if args else kwargs["x"])


class Plain:
    pass


class Number(enum.IntEnum):
    ONE = 1


class Colour(enum.Enum):
    RED = 1


Pair = namedtuple("Pair", "first second")


class BadRepr:
    """Raises in whatever a refusal may ask of an object."""

    def _raise(self, *_: Any) -> Any:
        raise ZeroDivisionError

    __repr__ = __str__ = __len__ = __iter__ = __eq__ = __hash__ = _raise  # type: ignore[assignment]
    __index__ = __float__ = __getattr__ = _raise


class Values:
    """Random objects, nested at most a few deep."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def text(self) -> str:
        alphabet = self.random.choice([string.ascii_letters, "\0\x7fgrün€😀", "a\ud800\udfff"])
        return "".join(self.random.choices(alphabet, k=self.random.choice([0, 1, 3, 200])))

    def integer(self) -> int:
        bits = self.random.choice([1, 8, 31, 62, 63, 64, 200])
        size = self.random.choice([self.random.getrandbits(bits), 1 << bits, (1 << bits) - 1])
        return self.random.choice([1, -1]) * size

    def simple(self) -> Any:
        makers: list[Callable[[], Any]] = [
            self.integer,
            self.integer,
            self.text,
            self.text,
            lambda: None,
            lambda: self.random.choice([True, False]),
            lambda: self.random.choice([0.0, -0.0, 1.5, math.inf, math.nan]),
            lambda: complex(self.random.random(), -1),
            lambda: torch.arange(self.random.randrange(4)),
            lambda: torch.device("cpu"),
            lambda: self.random.randbytes(self.random.randrange(5)),
            lambda: bytearray(b"x"),
            lambda: memoryview(b"x"),
            lambda: self.random.choice([Number.ONE, Colour.RED]),
            lambda: self.random.choice([numpy.float32(1.5), numpy.float64(1.5), numpy.int64(3), numpy.bool_(True)]),
            lambda: self.random.choice([numpy.str_("x"), numpy.complex128(1)]),
            lambda: numpy.zeros(2),
            lambda: self.random.choice([Plain, Plain(), BadRepr(), len, torch]),
            lambda: self.random.choice([..., NotImplemented, slice(1), range(3)]),
            lambda: mock.Mock(spec=torch.Tensor),
            lambda: (each for each in [1]),
            lambda: {1, 2},
            lambda: frozenset([1]),
            lambda: {1: 2}.keys(),
            lambda: torch.Generator(),
            lambda: torch.nn.Linear(1, 1),
        ]
        return self.random.choice(makers)()

    def key(self) -> Any:
        while True:
            key = self.random.choice([self.simple, lambda: (self.simple(), 1)])()
            try:
                hash(key)
            except (TypeError, ZeroDivisionError):
                continue
            return key

    def value(self, depth: int = 0) -> Any:
        kind = self.random.randrange(12 if depth < 4 else 6)
        if kind < 6:
            return self.simple()
        length = self.random.choice([0, 1, 1, 2, 4])
        if kind < 8:  # elements of one type, most often
            element = self.value(depth + 1)
            return [element] * length if kind == 6 else [element, self.value(depth + 1)]
        if kind < 10:
            return tuple(self.value(depth + 1) for _ in range(length))
        if kind == 10:
            return {self.key(): self.value(depth + 1) for _ in range(length)}
        return self.random.choice([Pair(1, self.simple()), torch.Size([1, 2]), OrderedDict(a=self.simple())])


def equal(sent: Any, got: Any) -> bool:
    """Whether the value is the one that was sent, by the table of docs/values.md."""
    if isinstance(sent, torch.Tensor):
        return torch.equal(sent, got)
    if isinstance(sent, bytes):
        return sent.decode() == got
    if isinstance(sent, tuple | list):
        kind = tuple if isinstance(sent, tuple) else list
        return type(got) is kind and len(sent) == len(got) and all(map(equal, sent, got))
    if isinstance(sent, dict):
        return type(got) is dict and len(sent) == len(got) and all(
            equal(a, b) and equal(sent[a], got[b]) for a, b in zip(sent, got, strict=True)
        )
    if isinstance(sent, float):
        return type(got) is float and (sent == got or (math.isnan(sent) and math.isnan(got)))
    return bool(sent == got)


def test_a_call_passes_an_equal_value_or_raises_an_error_of_isopool(same: isopool.Model) -> None:
    passed = 0
    for seed in range(1500):
        values = Values(seed)
        value = values.value()
        try:
            result = same(value) if seed % 2 else same(x=value)
        except isopool.Error as error:
            assert type(error) is isopool.Error, seed
            assert str(error).isprintable() and len(str(error)) < 3000, seed
            continue
        assert equal(value, result), f"seed {seed}: {value!r} came back as {result!r}"
        passed += 1
    assert passed > 100
    assert same(5) == 5


@pytest.mark.parametrize(
    "value, place, advice",
    [
        (2**63, "args[0] (of type int)", "does not fit into 64 bits"),
        ([1, -(2**63) - 1], "args[0][1] (of type int)", "does not fit into 64 bits"),
        ("\ud800", "args[0] (of type str)", "lone surrogates"),
        ({"\ud800": 1}, "a key of args[0] (of type str)", "lone surrogates"),
        (b"\0\xff", "args[0] (of type bytes)", "pass a tensor of dtype uint8"),
        ({(1, 2): 3}, "a key of args[0] (of type tuple)", "two lists"),
        ({"a": {7: [(1, Plain())]}}, "args[0]['a'][7][0][1] (of type Plain)", "isopool.Executor"),
        ((1, []), "args[0][1] (of type list)", "an empty list"),
        ([1, 2.5], "args[0] (of type list)", "int and float: pass a tuple"),
        ({"a": 1, "b": "c"}, "args[0] (of type dict)", "int and str: pass tuple() of its items()"),
        (numpy.float32(1), "args[0] (of type numpy.float32)", "item()"),
        ((each for each in [1]), "args[0] (of type generator)", "list"),
        ({"a": torch.ones(2).untyped_storage()}, "args[0]['a'] (of type torch.storage.UntypedStorage)", "a tensor"),
    ],
    ids=lambda each: each if isinstance(each, str) and each.isascii() else "",
)
def test_a_refusal_names_the_place_the_type_and_what_to_do(
    same: isopool.Model, value: Any, place: str, advice: str
) -> None:
    with pytest.raises(isopool.Error) as raised:
        same(value)
    assert str(raised.value).startswith(f"{place} can't be passed: ") and advice in str(raised.value)


def test_a_tensor_that_can_not_be_passed_is_refused_with_its_argument(same: isopool.Model) -> None:
    with pytest.raises(isopool.Error, match=r"^args\[1\]: .*to_dense"):
        same(1, (torch.eye(2).to_sparse(),))
    with pytest.raises(isopool.Error, match=r"^kwargs\['mask'\]: .*no data"):
        same(1, mask=torch.empty(2, device="meta"))
    with pytest.raises(isopool.Error, match=r"^args\[0\]: .*NaN key"):
        same({math.nan: 1})


def test_a_refusal_names_an_argument_by_its_number_or_name(same: isopool.Model) -> None:
    with pytest.raises(isopool.Error, match=r"^args\[1\] \(of type object\)"):
        same(1, object())
    with pytest.raises(isopool.Error, match=r"^kwargs\['mask'\]\[0\] \(of type object\)"):
        same(1, mask=(object(),))
    with pytest.raises(isopool.Error, match="the name of an argument"):
        same(1, **{"\ud800": 1})


NESTINGS: dict[str, Callable[[Any], Any]] = {
    "list": lambda each: [each],
    "tuple": lambda each: (each,),
    "dict": lambda each: {"a": each},
}


# A program of its own: without the refusal it dies of a stack overflow.
@pytest.mark.parametrize("kind", ["[x]", "(x,)", "{'a': x}"])
def test_an_argument_of_any_depth_is_refused(kind: str) -> None:
    program = f"""
        import asyncio, isopool
        from multipy.runtime import InterpreterManager
        x = 1
        for _ in range(300000):
            x = {kind}
        def session():
            with model.session() as opened:
                opened(x)
        with isopool.Pool(1) as pool:
            model = pool.load(lambda *args, **kwargs: 1)
            manager = InterpreterManager(1)
            copy = manager.acquire_one().global_("copy", "copy")
            for call in (
                lambda: model(x), lambda: model(1, x), lambda: model(y=x), lambda: model([1, (x, 2)]),
                lambda: asyncio.run(model.aio(x)), lambda: list(model.map([x])), lambda: list(model.stream(x)),
                lambda: model.call_on_all(x), lambda: model.warm_up(x), session, lambda: copy(x), lambda: copy(x=x),
            ):
                try:
                    call()
                except isopool.Error as error:
                    assert "64 deep" in str(error), error
                else:
                    raise AssertionError("it was not refused")
            print(model(1))
    """
    completed = run_program(program)
    assert completed.returncode == 0 and completed.stdout == "1\n", completed.stderr[-2000:]


@pytest.mark.parametrize("kind", NESTINGS)
def test_a_value_may_be_nested_64_deep(same: isopool.Model, kind: str) -> None:
    value: Any = 1
    for _ in range(64):
        value = NESTINGS[kind](value)
    assert same(value) == value
    with pytest.raises(isopool.Error, match="64 deep"):
        same(NESTINGS[kind](value))


def test_a_result_whose_class_claims_to_be_a_tensor_is_refused(pool: isopool.Pool) -> None:
    model = pool.load(lambda claims: mock.Mock(spec=torch.Tensor) if claims else 1)
    with pytest.raises(isopool.Error, match="Tracer cannot infer type"):
        model(True)
    assert pool.statistics().workers_replaced == 0
