# SPDX-License-Identifier: BSD-3-Clause
"""What a backend is given to load a model from."""

import dataclasses

from torch.package import PackageImporter


@dataclasses.dataclass(eq=False)
class ModelFile:
    path: str  # where this process can open it
    name: str  # what the program calls it: for messages
    mapping: object  # its bytes, private to this worker, for functions of _isopool
    # Of a torch.package. It is made once: what a backend sets here is there for the file's next object.
    importer: PackageImporter | None
