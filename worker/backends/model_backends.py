# SPDX-License-Identifier: BSD-3-Clause
"""The backends that load models, by the names that the formats have in requests.

A backend is a module with a function load(file: ModelFile, options: str) -> object. Its names and options come
from client/models/. The object that it returns is what calls of the model are made to.
"""

from isopool_worker import aot_inductor, exported_program, onnx_runtime, torch_package, torchscript
from isopool_worker.model_file import ModelFile
from torch.package import PackageImporter

_BACKENDS = {
    "torch.package": torch_package,
    "torchscript": torchscript,
    "aot_inductor": aot_inductor,
    "torch.export": exported_program,
    "onnx": onnx_runtime,
}


def names() -> list[str]:
    return list(_BACKENDS)


def load(
    backend: str, options: str, path: str, name: str, mapping: object, importer: PackageImporter | None
) -> tuple[object, PackageImporter | None]:
    """The object, and the importer that the file has from now on."""
    if backend not in _BACKENDS:
        raise ValueError(
            f"this worker has no backend for the model format {backend!r}, which is needed to load {name}. "
            f"It has: {', '.join(_BACKENDS)}. Use a program and an isopoold of the same isopool version"
        )
    file = ModelFile(path, name, mapping, importer)
    return _BACKENDS[backend].load(file, options), file.importer
