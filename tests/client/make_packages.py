# SPDX-License-Identifier: BSD-3-Clause
"""make_packages.py FOLDER: the packages of these tests, good and bad."""

import sys
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "worker"))

import onnx_file as onnx
import subject
import torch
import user_code_model
import values_model
from torch.package import PackageExporter

folder = Path(sys.argv[1])
torch.manual_seed(0)


def export(name: str, fill) -> Path:  # type: ignore[no-untyped-def]
    path = folder / name
    with PackageExporter(str(path)) as exporter:
        exporter.extern(["sys", "numpy", "numpy.**"])
        fill(exporter)
    return path


def subject_package(exporter: PackageExporter) -> None:
    exporter.intern(["probe", "subject"])
    exporter.save_pickle("model", "model.pkl", subject.Subject())
    exporter.save_pickle("model", "refusing.pkl", subject.Refusing())
    exporter.save_pickle("model", "slow_to_load.pkl", subject.SlowToLoad())


def values_package(exporter: PackageExporter) -> None:
    exporter.intern("values_model")
    exporter.save_pickle("model", "model.pkl", values_model.Values())


def user_code_package(exporter: PackageExporter) -> None:
    exporter.intern("user_code_model")
    exporter.save_pickle("model", "model.pkl", user_code_model.UserCode())


def answering(answer: int):  # type: ignore[no-untyped-def]
    """A module with the same name but different content in every package."""

    def fill(exporter: PackageExporter) -> None:
        source = f"def answer():\n    return {answer}\n"
        exporter.save_source_string("answers", source)
        exporter.save_source_string("entry", "import answers\nanswer = answers.answer\n")
        exporter.save_pickle("model", "model.pkl", torch.nn.Linear(2, 2))

    return fill


def with_extern(exporter: PackageExporter) -> None:
    """Needs a module that exists only here, while the package is made."""
    (folder / "isopool_no_such_module.py").touch()
    sys.path.append(str(folder))
    exporter.extern("isopool_no_such_module")
    exporter.save_source_string("entry", "import isopool_no_such_module as other\n")


def with_resources(exporter: PackageExporter) -> None:
    exporter.save_text("notes", "greeting.txt", "good morning, \u00e9\n")
    exporter.save_binary("notes", "all.bin", bytes(range(256)))
    exporter.save_binary("notes", "empty.bin", b"")
    exporter.save_binary("notes", "large.bin", b"x" * 3_000_000)


CLASS = """
class C{number}(torch.nn.Module):
    def __init__(self, width=1, options={{"depth": {number}}}):
        super().__init__()
        self.width = width
        self.options = options

    def forward(self, x, y=None):
        return x + self.width if y is None else [x * each for each in y if each > {number}]
"""

LARGE = """
import torch


class Large(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(16 << 20))
        self.cycle = [self]

    def forward(self):
        return float(self.weight.sum()) + later()


def later():
    import rest

    return rest.number
"""


def of_many_modules(exporter: PackageExporter) -> None:
    """As much Python code as a library of models has."""
    classes = "".join(CLASS.format(number=number) for number in range(40))
    names = [f"module{number}" for number in range(100)]
    for name in names:
        exporter.save_source_string(f"many.{name}", "import torch\n" + classes)
    exporter.save_source_string("many", "", is_package=True)
    imports = "".join(f"from many import {name}\n" for name in names)
    exporter.save_source_string("entry", imports + "def answer():\n    return len(dir())\n")
    exporter.save_pickle("model", "model.pkl", torch.nn.Linear(2, 2))


MODEL_INFO = """{"version": "7", "description": "a layer",
"inputs": [{"name": "rows", "dtype": "float32", "shape": [null, 2]}]}"""


def described(exporter: PackageExporter) -> None:
    """Two models of which a resource states what they take, one of them in another form."""
    for package, info in (("good.part", MODEL_INFO), ("bad", '{"inputs": 3}')):
        exporter.save_pickle(package, "model.pkl", torch.nn.Linear(2, 3))
        exporter.save_text(package, "model_info.json", info)


def with_large_weights(exporter: PackageExporter) -> None:
    """64 MiB in an object that refers to itself, and a module that a call imports."""
    (folder / "isopool_large.py").write_text(LARGE)
    sys.path.append(str(folder))
    import isopool_large

    exporter.intern("isopool_large")
    exporter.save_source_string("rest", "number = 1.5\n")
    exporter.save_pickle("model", "model.pkl", isopool_large.Large())


ONNX_USER = """
import os

import onnxruntime

MODEL = {model!r}


def threads():
    return len(os.listdir("/proc/self/task"))


def session_with(**options):
    settings = onnxruntime.SessionOptions() if options else None
    for name, value in options.items():
        setattr(settings, name, value)
    before = threads()
    session = onnxruntime.InferenceSession(MODEL, settings, providers=["CPUExecutionProvider"])
    made = session.get_session_options()
    return [made.intra_op_num_threads, made.inter_op_num_threads, threads() - before]


def default_session():
    return session_with()


def session_with_options():
    return session_with(log_severity_level=4)


def session_with_own_threads():
    return session_with(intra_op_num_threads=3)
"""


def onnx_user(exporter: PackageExporter) -> None:
    """Makes its sessions of ONNX Runtime itself."""
    relu = onnx.node("Relu", ["x"], ["y"])
    model = onnx.model([relu], [onnx.value("x", [1])], [onnx.value("y", [1])])
    exporter.extern("onnxruntime")
    exporter.save_source_string("entry", ONNX_USER.format(model=model))


def rewritten(source: Path, name: str, record: str, text: str) -> None:
    """A copy of a package in which one record has another text."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(folder / name, "w") as new:
        for entry in old.infolist():
            data = old.read(entry)
            new.writestr(entry.filename, text if entry.filename.endswith(record) else data)


made = export("subject.pt", subject_package)
export("values.pt", values_package)
export("user_code.pt", user_code_package)
export("one.pt", answering(1))
export("two.pt", answering(2))
export("extern.pt", with_extern)
export("onnx_user.pt", onnx_user)
export("resources.pt", with_resources)
export("described.pt", described)
export("many_modules.pt", of_many_modules)
export("large.pt", with_large_weights)
(folder / "isopool_large.py").unlink()
(folder / "isopool_no_such_module.py").unlink()
rewritten(folder / "one.pt", "other_python.pt", ".data/python_version", "3.3.7\n")
torch.save({"weight": torch.ones(3)}, folder / "saved.pt")
(folder / "truncated.pt").write_bytes(made.read_bytes()[: made.stat().st_size // 2])
(folder / "empty.pt").touch()
(folder / "text.pt").write_text("this is no zip file, however long one looks at it\n" * 100)
with zipfile.ZipFile(folder / "plain.zip", "w") as archive:
    archive.writestr("readme.txt", "no package")
