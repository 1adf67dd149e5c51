# SPDX-License-Identifier: BSD-3-Clause
"""Objects that are pickled in a torch.package, with their Python source."""

import json

from isopool_worker.model_file import ModelFile
from isopool_worker.packages import check_pickle, forget_package, open_package


def load(file: ModelFile, options: str) -> object:
    """`options`: a JSON list of the pickle's module and file."""
    module, pickle = json.loads(options)
    importer = file.importer or open_package(file.path, file.mapping)
    try:
        check_pickle(importer, file.name, module, pickle)
        with importer.zip_reader.mapped(file.mapping):
            loaded = importer.load_pickle(module, pickle)
    except BaseException:
        # An importer keeps the modules whose import failed, half made: the next attempt gets another.
        if file.importer is None:
            forget_package(importer)
        raise
    file.importer = importer
    return loaded
