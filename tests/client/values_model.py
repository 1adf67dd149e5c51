# SPDX-License-Identifier: BSD-3-Clause
"""A model that returns results of every kind and describes its arguments."""

import collections
import dataclasses
import enum
import importlib
import types

import numpy
import torch


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


Point = collections.namedtuple("Point", ["x", "y"])


@dataclasses.dataclass
class Inner:
    numbers: list
    label: str | None = None


@dataclasses.dataclass
class Outer:
    tensor: torch.Tensor
    inner: Inner


class Plain:
    pass


class Wrapping(torch.Tensor):
    """A subclass whose tensors have no own data."""

    @staticmethod
    def __new__(cls, wrapped):
        return torch.Tensor._make_wrapper_subclass(cls, wrapped.shape, dtype=wrapped.dtype)

    def __init__(self, wrapped):
        self.wrapped = wrapped

    def __repr__(self):
        return "Wrapping(...)"

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), named=None):
        raise NotImplementedError


class Sour(collections.UserDict):
    def items(self):
        raise RuntimeError("no items today")


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(3)


def symbolic():
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    return ShapeEnv().create_unbacked_symint()


def endless():
    result = []
    result.append(result)
    return result


def structured():
    return numpy.zeros(2, dtype=[("a", "i4"), ("b", "f4")])


def read_only():
    array = numpy.arange(3, dtype=numpy.int32)
    array.flags.writeable = False
    return array


# The inverse of the factor of c10's hash function: its small multiples fall into the same slot.
CROWDING = pow(11400714819323198485, -1, 1 << 64)

KINDS = {
    # ---- dicts that no conversion supports
    "NaN key": lambda: {float("nan"): 1},
    "crowded keys": lambda: {
        (i * CROWDING + (1 << 63)) % (1 << 64) - (1 << 63): 1 for i in range(20)
    },
    # ---- kinds that the strict conversion supports
    "none": lambda: None,
    "bool": lambda: True,
    "int": lambda: 7,
    "float": lambda: 2.5,
    "complex": lambda: 1 - 2j,
    "str": lambda: "text",
    "bytes": lambda: b"\x00\xffb",
    "device": lambda: torch.device("cpu"),
    "dtype": lambda: torch.float64,
    "layout": lambda: torch.strided,
    "size": lambda: torch.Size([2, 3]),
    "ints": lambda: [1, 2],
    "list with None": lambda: [torch.ones(1), None],
    "nested": lambda: {"a": [(1, "b")]},
    "tuple": lambda: (1, "b", None),
    "empty tuple": lambda: (),
    "named tuple": lambda: Point(1, 2.5),
    "ordered dict": lambda: collections.OrderedDict(b=2, a=1),
    "int keys": lambda: {2: "two", 1: "one"},
    "int enum": lambda: Level.HIGH,
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "numpy float64": lambda: numpy.float64(0.5),
    # ---- kinds that only the permissive conversion supports
    "empty list": lambda: [],
    "empty dict": lambda: {},
    "empty lists in a list": lambda: [[], [1]],
    "mixed list": lambda: [1, 2.0, "three"],
    "bool and int": lambda: [True, 1],
    "mixed dict": lambda: {"tensor": torch.ones(2), "list": [torch.zeros(1)], "n": 3},
    "mixed keys": lambda: {"a": 1, 2: 3},
    "keys or None": lambda: {None: 1, 2: 3},
    "set": lambda: {5},
    "frozenset": lambda: frozenset(["x"]),
    "range": lambda: range(3),
    "deque": lambda: collections.deque([1, 2]),
    "dict keys": lambda: {"k": 1}.keys(),
    "user dict": lambda: collections.UserDict(k=1),
    "mapping": lambda: types.MappingProxyType({"k": [1, "x"]}),
    "moved dict": lambda: moved(),
    "bytearray": lambda: bytearray(b"ab"),
    "empty bytes": lambda: b"",
    "enum": lambda: Colour.RED,
    "enum key": lambda: {Colour.RED: 1},
    "dataclass": lambda: Outer(torch.ones(1), Inner([])),
    "array": lambda: numpy.arange(6, dtype=numpy.float32).reshape(2, 3),
    "transposed array": lambda: numpy.arange(6, dtype=numpy.int16).reshape(2, 3).T,
    "reversed array": lambda: numpy.arange(3)[::-1],
    "big-endian array": lambda: numpy.arange(3, dtype=">i4"),
    "read-only array": read_only,
    "0-dim array": lambda: numpy.array(5),
    "empty array": lambda: numpy.zeros((0, 2)),
    "bool array": lambda: numpy.array([True, False]),
    "numpy float32": lambda: numpy.float32(0.5),
    "numpy int8": lambda: numpy.int8(-3),
    "numpy bool": lambda: numpy.bool_(True),
    "numpy complex64": lambda: numpy.complex64(1j),
    "numpy longdouble": lambda: numpy.longdouble(1.5),
    "numpy key": lambda: {numpy.int64(4): 1},
    "arrays in a dict": lambda: {"a": [numpy.ones(1), 1]},
    # ---- kinds that neither conversion supports
    "object": lambda: Plain(),
    "class": lambda: Plain,
    "function": lambda: fake,
    "module": lambda: torch.nn.Linear(1, 1),
    "script module": lambda: torch.jit.script(torch.nn.Linear(1, 1)),
    "generator": lambda: (i for i in range(3)),
    "torch generator": lambda: torch.Generator(),
    "stream": lambda: torch.Stream(device="cpu"),
    "storage": lambda: torch.ones(1).untyped_storage(),
    "future": lambda: torch.futures.Future(),
    "symbolic": symbolic,
    "huge integer": lambda: {"past": [1, 2, 3, 2**70]},
    "surrogate": lambda: ["\ud800"],
    "object deep inside": lambda: {"a": [1, (2, Plain())]},
    "object array": lambda: numpy.array([Plain()]),
    "text array": lambda: numpy.array(["text"]),
    "structured array": structured,
    "masked array": lambda: numpy.ma.masked_array([1, 2], [True, False]),
    "date": lambda: numpy.datetime64("2020-01-01"),
    "tuple key": lambda: {"t": {(1, 2): 3}},
    "bytes key": lambda: {b"k": 3},
    "None key": lambda: {None: 3},
    "keys that meet": lambda: {Colour.RED: 1, "red": 2},
    "endless": endless,
    "sour": lambda: [Sour()],
    # ---- tensors that can't cross
    "coo": lambda: torch.eye(3).to_sparse(),
    "csr": lambda: torch.eye(3).to_sparse_csr(),
    "csc": lambda: torch.eye(3).to_sparse_csc(),
    "bsr": lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    "mkldnn": lambda: torch.ones(3).to_mkldnn(),
    "meta": lambda: torch.empty(3, device="meta"),
    "nested tensor": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "jagged tensor": lambda: torch.nested.nested_tensor(
        [torch.ones(2), torch.ones(3)], layout=torch.jagged
    ),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8),
    "fake": fake,
    "zero tensor": lambda: torch._efficientzerotensor(3),
    "wrapping": lambda: Wrapping(torch.ones(3)),
    "coo in a list": lambda: [torch.ones(1), torch.eye(3).to_sparse()],
}


def moved():
    result = collections.OrderedDict(a=1, b=2)
    result.move_to_end("a")
    return result


class Values(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last: list[torch.Tensor] = []

    def forward(self, name, *arguments):
        return getattr(self, name)(*arguments)

    def made(self, kind):
        return KINDS[kind]()

    def kept_array(self):
        """One array, whose first element counts the calls."""
        if not hasattr(self, "array"):
            self.array = numpy.zeros(1000, dtype=numpy.int64)
        self.array[0] += 1
        return self.array

    def describe(self, x):
        return f"{type(x).__name__} {x!r}"

    # ---- tensors
    def facts(self, x):
        """All properties of a tensor except its data."""
        return (
            f"{x.dtype} {list(x.shape)} {list(x.stride())} grad {x.requires_grad} "
            f"conj {x.is_conj()} neg {x.is_neg()}"
        )

    def identity(self, x):
        return x

    def kept(self, x):
        """The result is a copy because the model keeps the tensor."""
        self.last = [x]
        return x

    def fresh(self, x):
        """The same tensor, of any dtype and strides, in a storage that the call makes."""
        source = x.untyped_storage()
        storage = torch.empty(source.nbytes(), dtype=torch.uint8)
        storage.copy_(torch.empty(0, dtype=torch.uint8).set_(source))
        return torch.empty(0, dtype=x.dtype).set_(
            storage.untyped_storage(), x.storage_offset(), x.shape, x.stride()
        )

    def is_inference(self, x):
        return x.is_inference(), torch.is_inference_mode_enabled()

    def zero_everything(self, x):
        x.zero_()

    # ---- the caller's modes
    def autocast(self):
        product = torch.ones(4, 4) @ torch.ones(4, 4)
        return (
            torch.is_autocast_enabled("cpu"),
            str(torch.get_autocast_dtype("cpu")),
            torch.is_autocast_cache_enabled(),
            str(product.dtype),
        )

    def nested_autocast(self):
        """The model's own autocast contexts within the caller's one."""
        x = torch.ones(4, 4)
        with torch.autocast("cpu", enabled=False):
            without = str((x @ x).dtype)
        with torch.autocast("cpu", dtype=torch.float16):
            half = str((x @ x).dtype)
        return without, half, str((x @ x).dtype)

    def denormals(self):
        """Whether a denormal operand and a denormal result keep their bits."""
        operand = torch.full((8,), 1e-310, dtype=torch.float64) * 1
        result = torch.full((8,), 1e-160, dtype=torch.float64) * 1e-150
        return bool((operand.view(torch.int64) != 0).all()), bool((result.view(torch.int64) != 0).all())

    def leave_denormals_flushed(self):
        torch.set_flush_denormal(True)

    def leave_inference_on(self):
        self.mode = torch.inference_mode()  # its end ends the mode
        self.mode.__enter__()

    def inference(self):
        return torch.is_inference_mode_enabled()

    def leave_autocast_on(self):
        torch.set_autocast_enabled("cpu", True)
        torch.set_autocast_dtype("cpu", torch.float16)
        torch.set_autocast_cache_enabled(False)

    def weight_product(self, x):
        """The cache of cast weights must not outlive the call: the weight changes in between."""
        if not hasattr(self, "weight"):
            self.weight = torch.nn.Parameter(torch.ones(4, 4))
        return (x @ self.weight).float()

    def set_weight(self, value):
        with torch.no_grad():
            self.weight.fill_(value)

    # ---- Hugging Face
    def hugging_face(self, kind):
        """The unchanged output of a small model with random weights."""
        transformers = importlib.import_module("transformers")
        torch.manual_seed(0)
        ids = torch.tensor([[1, 2, 3]])
        with torch.no_grad():
            if kind == "bert":
                config = transformers.BertConfig(
                    vocab_size=11, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
                    intermediate_size=8, max_position_embeddings=8,
                    attn_implementation="eager",
                )
                model = transformers.BertModel(config).eval()
                return model(ids, output_hidden_states=True, output_attentions=True)
            config = transformers.GPT2Config(
                vocab_size=11, n_embd=8, n_layer=2, n_head=2, n_positions=8
            )
            return transformers.GPT2LMHeadModel(config).eval()(ids, use_cache=True)
