"""make_corpus.py [--check] FOLDER: makes the first inputs of each fuzzer from isopool's messages.

Writes FOLDER/<fuzzer>/made-<name>, and removes other files of such names. Inputs that libFuzzer
found are beside them in corpus/. With --check it writes nothing and exits with 1 if a file would
change.
"""

import io
import pathlib
import re
import struct
import sys
import zipfile
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONTROL = ROOT / "ipc/control"
MESSAGES = "".join(
    path.read_text() for path in [*sorted(CONTROL.glob("*message*.h")), CONTROL / "model_calls.h"]
)


# ---- msgpack --------------------------------------------------------------------------------


class Extension:
    def __init__(self, kind: int, content: bytes) -> None:
        self.kind = kind
        self.content = content


def packed(value: object) -> bytes:
    """The shortest form of everything that isopool sends."""
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        if 0 <= value < 128:
            return bytes([value])
        if value < 0:
            return struct.pack(">Bq", 0xD3, value)
        return struct.pack(">BQ", 0xCF, value)
    if isinstance(value, float):
        return struct.pack(">Bd", 0xCB, value)
    if isinstance(value, str):
        text = value.encode()
        return struct.pack(">BH", 0xDA, len(text)) + text
    if isinstance(value, bytes):
        return struct.pack(">BH", 0xC5, len(value)) + value
    if isinstance(value, Extension):
        return struct.pack(">BHb", 0xC8, len(value.content), value.kind) + value.content
    if isinstance(value, list):
        head = bytes([0x90 + len(value)]) if len(value) < 16 else struct.pack(">BH", 0xDC, len(value))
        return head + b"".join(map(packed, value))
    raise TypeError(value)


# ---- control frames -------------------------------------------------------------------------


def message_types() -> dict[str, int]:
    """Each enumerator's number, by the message's name."""
    body = re.search(r"enum class MessageType : uint32_t \{(.*?)\};", MESSAGES, re.DOTALL)
    assert body is not None
    numbers = {}
    number = 0
    for name, value in re.findall(r"^\s*k(\w+)(?: = (\d+))?,", body[1], re.MULTILINE):
        number = int(value) if value else number + 1
        numbers[name] = number
    return numbers


def structures() -> dict[str, list[str]]:
    """The types of each structure's fields, in the order in which they are sent."""
    found = {}
    for name, body in re.findall(r"^struct (\w+) \{\n(.*?)^\};", MESSAGES, re.DOTALL | re.MULTILINE):
        types = dict(
            (field, kind)
            for kind, field in re.findall(r"^  ([\w:<>]+) (\w+)(?: =|;)", body, re.MULTILINE)
        )
        order = re.search(r"MSGPACK_DEFINE_ARRAY\(([^)]*)\)", body)
        fields = re.split(r",\s*", order[1].strip()) if order else []
        found[name] = [types[field] for field in fields if field]
    return found


def example(kind: str, known: dict[str, list[str]], number: int) -> object:
    if kind == "bool":
        return number % 2 == 1
    if kind == "std::string":
        return "text" * number
    if kind == "int32_t":
        return -number
    if kind.startswith("std::vector<"):
        return [example(kind[12:-1], known, number + i) for i in range(number)]
    if kind in known:
        return [example(field, known, number) for field in known[kind]]
    return (1 << 20) + number


def frame(kind: int, body: bytes, descriptors: int = 0, magic: int = 0x314F5349) -> bytes:
    return struct.pack("<IIII", magic, kind, len(body), descriptors) + body


def control_decoder() -> Iterator[tuple[str, bytes]]:
    known = structures()
    for name, kind in message_types().items():
        values = [example(field, known, 2) for field in known[name]]
        yield name, b"\0\0" + frame(kind, packed(values))
        yield f"{name}-short", b"\x07\0" + frame(kind, packed(values[:1]))
        yield f"{name}-long", b"\0\x02" + frame(kind, packed([*values, None]), 2)
    hello = frame(1, packed([2, 1]), 1)
    yield "many-frames", b"\x20\x11" + hello * 8
    yield "no-magic", b"\0\0" + frame(1, packed([]), 0, 1)
    yield "no-descriptors", b"\0\0" + hello
    yield "too-many-descriptors", b"\0\x0f" + frame(1, packed([2]), 16)
    yield "descriptors-too-early", b"\x04\xf0" + hello
    yield "deep", b"\0\0" + frame(1, b"\x91" * 20 + b"\0")
    yield "behind-its-end", b"\0\0" + frame(1, packed([2]) + b"\0")
    yield "unknown-type", b"\0\0" + frame(77, packed([2]))


# ---- rings ----------------------------------------------------------------------------------

PUBLISH, TAKE, START, COMPLETE, CONSUME, RECALL, LEND, COLLECT, GIVE_BACK, SLEEP, LOOK = range(11)
SPOIL_CLIENT, SPOIL_WORKER, SPOIL_TAILS, SPOIL_SUBMISSION, SPOIL_COMPLETION = range(11, 16)


def rings() -> Iterator[tuple[str, bytes]]:
    publish = struct.pack("<BH", PUBLISH, 100)
    complete = struct.pack("<BH", COMPLETE, 1992)
    call = publish + bytes([TAKE, START]) + complete + bytes([CONSUME])
    yield "calls", call * 40
    yield "full", publish * 33 + bytes([TAKE, START]) * 33 + complete * 33 + bytes([CONSUME]) * 33
    yield "recall", publish + struct.pack("<BQ", RECALL, 0) + bytes([TAKE, START]) + complete
    loan = bytes([LEND, 3]) + struct.pack("<BI", GIVE_BACK, 0) + bytes([COLLECT])
    yield "loans", loan * 8 + bytes([LEND, 1, LEND, 2, COLLECT])
    yield "sleep", call + bytes([SLEEP, LOOK]) + call
    for name, step, at in (("client", SPOIL_CLIENT, 0x80), ("worker", SPOIL_WORKER, 0x80)):
        spoil = b"".join(struct.pack("<BII", step, at // 4 + 32 * i, 7) for i in range(8))
        yield f"spoilt-{name}", call + spoil + call + bytes([LOOK])
    for delta in (1, 3, -3, 66, 67, 2, -2):
        yield f"tail{delta}", struct.pack("<Bb", SPOIL_TAILS, delta) + bytes([TAKE, CONSUME]) + call
    for size in (10, 1992, 1993, 65535):
        slot = struct.pack("<BBHH", 0, 1, size, 0)
        spoil = bytes([SPOIL_SUBMISSION]) + slot + bytes([SPOIL_COMPLETION]) + slot
        tails = struct.pack("<BbBb", SPOIL_TAILS, 2, SPOIL_TAILS, 3)
        yield f"size{size}", spoil + tails + bytes([TAKE, CONSUME])


# ---- payloads -------------------------------------------------------------------------------

TUPLE, LIST, DICT, DEVICE = range(4)
INLINE, LENT, HOME, ECHO, PACKAGE = range(5)
ANY, TENSOR, INT, FLOAT, BOOL, STRING, COMPLEX, NONE, DEVICE_TYPE, NUMBER = range(10)
LIST_TYPE, OPTIONAL_TYPE, DICT_TYPE, TUPLE_TYPE = range(20, 24)
FLOAT32, COMPLEX64, BYTE = 6, 9, 0
# The inverse of the number by which c10's hash table multiplies: its small multiples share a slot.
CROWDING = pow(11400714819323198485, -1, 1 << 64)


def tensor(
    sizes: list[int],
    strides: list[int],
    storage: int = 0,
    scalar: int = FLOAT32,
    flags: int = 0,
    offset: int = 0,
    version: int = 0,
) -> Extension:
    head = struct.pack("<IBBBBqII", storage, scalar, flags, len(sizes), 0, offset, version, 0)
    return Extension(1, head + struct.pack(f"<{2 * len(sizes)}q", *sizes, *strides))


def payload(elements: list[object], storages: list[object] | None = None, *report: object) -> bytes:
    return packed([elements, storages or [], *report])


def values() -> Iterator[tuple[str, object, list[object]]]:
    yield "nil", None, []
    yield "numbers", [TUPLE, 0, -5, 1 << 40, 0.5, True, "text"], []
    yield "complex", Extension(2, struct.pack("<dd", 1, -1)), []
    yield "handle", Extension(3, struct.pack("<Q", 9)), []
    yield "device", [DEVICE, "cpu"], []
    yield "no-device", [DEVICE, "cuda:77777777777"], []
    yield "ints", [LIST, INT, 1, 2], []
    yield "floats", [LIST, FLOAT, 1.5], []
    yield "any", [LIST, ANY, 1, "two", None, [TUPLE]], []
    yield "optionals", [LIST, [OPTIONAL_TYPE, STRING], "a", None], []
    yield "optional-none", [LIST, [OPTIONAL_TYPE, NONE]], []
    yield "lists", [LIST, [LIST_TYPE, INT], [LIST, INT, 1]], []
    yield "tuples", [LIST, [TUPLE_TYPE, INT, BOOL], [TUPLE, 1, True]], []
    yield "others", [LIST, [TUPLE_TYPE, COMPLEX, NONE, DEVICE_TYPE, NUMBER]], []
    yield "dict", [DICT, STRING, INT, "a", 1, "b", 2], []
    yield "any-dict", [DICT, ANY, ANY, 1, "a", "b", None], []
    yield "dicts", [DICT, INT, [DICT_TYPE, STRING, FLOAT], 1, [DICT, STRING, FLOAT, "x", 0.5]], []
    yield "wrong-kind", [LIST, INT, "one"], []
    yield "half-dict", [DICT, STRING, INT, "a"], []
    yield "number-types", [LIST, NUMBER, 1, 0.5], []
    yield "booleans", [LIST, BOOL, True], []
    yield "devices", [LIST, DEVICE_TYPE, [DEVICE, "cpu"]], []
    yield "nones", [LIST, NONE, None], []
    yield "complexes", [LIST, COMPLEX, Extension(2, struct.pack("<dd", 1, 2))], []
    stored = [INLINE, bytes(range(64))]
    yield "inline", tensor([4, 4], [4, 1]), [stored]
    yield "views", [TUPLE, tensor([4], [2], offset=1), tensor([2, 2], [0, 1])], [stored]
    other = [tensor([4], [1], version=1), tensor([4], [1], version=0xFFFFFFFF), tensor([4], [1])]
    yield "versions", [TUPLE, tensor([4], [1]), *other, tensor([4], [1], 1, version=1)], [stored, stored]
    yield "no-version", tensor([4], [1], version=1 << 20), [stored]
    yield "scalar", tensor([], []), [stored]
    yield "empty", tensor([0, 3], [3, 1], offset=99), [stored]
    yield "flags", [TUPLE, tensor([2], [1], flags=5), tensor([2], [1], 0, COMPLEX64, 7)], [stored]
    yield "lent", tensor([100], [1]), [[LENT, 1, 4096, 400, 3, 1]]
    yield "home", tensor([100], [1]), [[HOME, 1, 4096, 400]]
    yield "echo", tensor([16], [1], 0, BYTE), [[ECHO, 0]]
    yield "stored", tensor([16], [1]), [[PACKAGE, 1, 64, 64]]
    yield "tensors", [LIST, TENSOR, tensor([1], [1]), None, tensor([1], [1], 1)], [stored, stored]
    yield "tensor-keys", [DICT, TENSOR, INT, tensor([1], [1]), 1], [stored]
    yield "odd-stored", tensor([8], [1]), [[PACKAGE, 1, 65, 32]]
    parts = [tensor([2], [1], i) for i in range(3)]
    yield "stored-parts", [TUPLE, *parts], [[PACKAGE, 1, 64 * i, 4096 - 64 * i] for i in (0, 5, 63)]
    nan = float("nan")
    yield "nan-keys", [DICT, FLOAT, INT, *[word for _ in range(24) for word in (nan, 1)]], []
    crowded = [(i * CROWDING + (1 << 63)) % (1 << 64) - (1 << 63) for i in range(24)]
    yield "crowded-keys", [DICT, INT, INT, *[word for key in crowded for word in (key, 1)]], []
    yield "beyond", tensor([17], [1]), [stored]
    yield "overflow", tensor([1 << 62, 8], [1 << 62, 1]), [stored]
    yield "no-storage", tensor([1], [1], 5), [stored]
    yield "odd", tensor([4], [1]), [[LENT, 1, 4097, 400, 3, 1]]
    yield "unknown-storage", tensor([4], [1]), [[9, 1]]
    nested: object = [TUPLE]
    for _ in range(70):
        nested = [TUPLE, nested]
    yield "deep", nested, []


def payload_reader() -> Iterator[tuple[str, bytes]]:
    for name, value, storages in values():
        yield name, payload([value], storages)
    yield "call", payload([7, [TUPLE, 1], "name", Extension(3, bytes(8))])
    yield "report", payload([1], [], [[[1, 0, 5], [9, 9, 9]], [0, 7], [[1, 0], [2, 0]]])
    yield "half-report", payload([1], [], [[[1, 0]], [0]])
    yield "float32", b"\x92\x91\xca\x3f\x80\x00\x00\x90"
    yield "map", b"\x92\x91\x80\x90"
    yield "long-claims", b"\xdd\x00\x00\x00\x50" * 20
    yield "long-claims-of-a-blob", b"\xdd\x00\x00\x07\xe0" * 30 + bytes(2000)


# ---- answers --------------------------------------------------------------------------------

VALUE, PYTHON_ERROR, REFUSED, WITHDRAWN = range(1, 5)
WITH_REPORT = 0x80
IN_BLOB, OWN_PLACE, OWN_SEQUENCE, OWN_EPOCH, OWN_TAIL, STARTED, OWN_HEAD, DIES = (
    1 << i for i in range(8)
)


def lie(lies: int, status: int, offset: int = 0) -> bytes:
    return struct.pack("<BBH", lies, status, offset)


def worker_answer() -> Iterator[tuple[str, bytes]]:
    for name, value, storages in values():
        yield name, lie(STARTED, VALUE) + payload([value, []], storages)
    good = payload([None, [[1, 5], [99, 5]]])
    yield "copies", lie(0, VALUE) + good
    report = [[[1, 0, 5], [9, 9, 9]], [0, 7], [[1, 0]]]
    yield "report", lie(STARTED, VALUE | WITH_REPORT) + payload([None, []], [], report)
    yield "own-report", lie(STARTED, VALUE | WITH_REPORT) + payload([None, []], [], [[[1, 0, 5]], [0], []])
    yield "no-report", lie(STARTED, VALUE | WITH_REPORT) + good
    yield "odd-copies", lie(0, VALUE) + payload([None, [[1], "x"]])
    yield "blob", lie(IN_BLOB, VALUE, 512) + good
    yield "place", lie(OWN_PLACE, VALUE) + struct.pack("<IIQQ", 0, 1, 65000, 5000)
    yield "other-segment", lie(OWN_PLACE, VALUE) + struct.pack("<IIQQ", 0, 2, 0, 8)
    yield "too-long", lie(OWN_PLACE, VALUE) + struct.pack("<IIQQ", 1993, 0, 0, 0)
    yield "python-error", lie(0, PYTHON_ERROR) + payload(["E", "m", "t", "f"])
    for kind in range(1, 8):
        yield f"refused-{kind}", lie(0, REFUSED) + payload([kind, "text"])
    yield "withdrawn", lie(0, WITHDRAWN) + payload([])
    yield "unknown-status", lie(0, 9) + good
    yield "sequence", lie(OWN_SEQUENCE, VALUE) + struct.pack("<Q", 33) + good
    yield "epoch", lie(OWN_EPOCH, VALUE) + struct.pack("<Q", 6) + good
    for tail in (0, 2, 33, 1 << 31):
        yield f"tail-{tail}", lie(OWN_TAIL, VALUE) + struct.pack("<I", tail) + good
    yield "head", lie(OWN_HEAD, VALUE) + struct.pack("<I", 5) + good
    yield "dead", lie(DIES, VALUE) + good
    yield "no-answer-and-dead", lie(OWN_TAIL | STARTED, VALUE) + struct.pack("<I", 0)


# ---- packages -------------------------------------------------------------------------------


def archive(records: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as writer:
        for name, content in {**records, ".data/version": b"3\n", "version": b"3\n"}.items():
            writer.writestr(zipfile.ZipInfo(f"archive/{name}"), content, compression)
    return file.getvalue()


def protobuf(*fields: tuple[int, int | bytes]) -> bytes:
    """A message of fields below 16 and of numbers and lengths below 128."""
    parts = []
    for field, content in fields:
        if isinstance(content, int):
            parts.append(bytes([field << 3, content]))
        else:
            parts.append(bytes([field << 3 | 2, len(content)]) + content)
    return b"".join(parts)


def package_opener() -> Iterator[tuple[str, bytes]]:
    package = {".data/extern_modules": b"sys\nnumpy\n", ".data/python_version": b"3.11.2\n"}
    library = {
        "archive_format": b"pt2",
        "data/aotinductor/model/a.wrapper.so": b"\x7fELF" * 8,
        "data/aotinductor/model/a.wrapper.json": b"{}",
        "data/aotinductor/model/a_metadata.json": b'{"AOTI_DEVICE_KEY": "cpu"}',
    }
    kinds = {
        "package": package,
        "script": {"constants.pkl": b"x", "data.pkl": b"x"},
        "exported": {"archive_format": b"pt2", "models/model.json": b"{}"},
        "compiled": library,
        "two-models": {**library, "data/aotinductor/other/a.so": b"x"},
        "cuda": {**library, "data/aotinductor/model/b_metadata.json": b'{"AOTI_DEVICE_KEY":"cuda"}'},
        "odd-json": {**library, "data/aotinductor/model/c_metadata.json": b'"AOTI_DEVICE_KEY"'},
        "weights": {**library, "data/aotinductor/model/weights_config.json": b"{}"},
        "custom": {**library, "data/constants/custom_obj_0": b"x"},
        "no-library": {"archive_format": b"pt2", "data/aotinductor/model/a.cpp": b""},
        "saved": {"data.pkl": b"x", "byteorder": b"little"},
        "other": {"nothing": b""},
        "pt2-of-nothing": {"archive_format": b"pt2"},
    }
    for name, records in kinds.items():
        yield name, archive(records)
    yield "deflated", archive({**package, "code.py": b"a = 1\n" * 99}, zipfile.ZIP_DEFLATED)
    yield "cut", archive(package)[:-30]
    yield "no-archive", b"PK\x03\x04 and nothing else"
    place = protobuf((1, b"location"), (2, b"weights.bin"))
    weight = protobuf((1, 2), (2, 1), (8, b"weight"), (9, b"8 bytes."))
    elsewhere = protobuf((1, 2), (2, 1), (8, b"weight"), (13, place), (14, 1))
    for name, initializer in ("onnx", weight), ("onnx-external", elsewhere):
        graph = protobuf((1, protobuf((1, b"x"), (2, b"y"), (4, b"Neg"))), (5, initializer))
        yield name, protobuf((1, 8), (7, graph), (8, protobuf((2, 17))))


FUZZERS = (control_decoder, rings, payload_reader, worker_answer, package_opener)


def made() -> dict[str, bytes]:
    """The content of each input, by its path in FOLDER."""
    return {
        f"{fuzzer.__name__}/made-{name}": content
        for fuzzer in FUZZERS
        for name, content in fuzzer()
    }


def existing(folder: pathlib.Path) -> dict[str, bytes]:
    """The same of the inputs that are in FOLDER."""
    return {
        f"{file.parent.name}/{file.name}": file.read_bytes() for file in folder.glob("*/made-*")
    }


def write(folder: pathlib.Path) -> None:
    inputs = made()
    for name in existing(folder).keys() - inputs.keys():
        (folder / name).unlink()
    for name, content in inputs.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def check(folder: pathlib.Path) -> int:
    """The exit status: 1 if the inputs in FOLDER are not those that write() would leave there."""
    now, before = made(), existing(folder)
    stale = sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))
    if not stale:
        return 0
    print(f"{len(stale)} inputs are not those of today's messages: {', '.join(stale)}")
    print(f"Run {pathlib.Path(__file__).name} {folder}")
    return 1


def main(words: list[str]) -> int:
    checks = words[:1] == ["--check"]
    folders = words[1:] if checks else words
    if len(folders) != 1 or folders[0].startswith("-"):
        print(__doc__)
        return 2
    folder = pathlib.Path(folders[0])
    if checks:
        return check(folder)
    write(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
