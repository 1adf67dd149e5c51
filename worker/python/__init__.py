# SPDX-License-Identifier: BSD-3-Clause
"""The Python part of a worker. It is embedded in isopool-worker, which executes this file first."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType

import _isopool


class _EmbeddedLoader(importlib.abc.InspectLoader):
    def __init__(self, sources: dict[str, str]) -> None:
        self._sources = sources

    def find_spec(
        self, name: str, path: object = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._sources:
            return None
        return importlib.util.spec_from_loader(name, self, origin=self._file(name))

    def get_source(self, fullname: str) -> str:
        return self._sources[fullname]

    def get_code(self, fullname: str):  # type: ignore[no-untyped-def]
        return self.source_to_code(self._sources[fullname], self._file(fullname))

    @staticmethod
    def _file(name: str) -> str:
        return f"<isopool>/{name.replace('.', '/')}.py"


__path__: list[str] = []
sys.meta_path.append(
    _EmbeddedLoader({f"{__name__}.{name}": text for name, text in _isopool.embedded_sources()})
)
