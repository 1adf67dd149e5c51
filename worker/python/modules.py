# SPDX-License-Identifier: BSD-3-Clause
"""Look-up of missing modules, and modules that the program registered as text."""

import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import sys
from types import CodeType, ModuleType


def find_missing(names: list[str]) -> list[str]:
    """The names that can't be imported here. Imports their parent packages, but not the modules."""
    return [name for name in names if not _is_there(name)]


def _is_there(name: str) -> bool:
    if name in sys.modules:
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except Exception:
        return False


class _RegisteredSources(importlib.abc.InspectLoader):
    """Finds and loads registered modules. It is the last finder: other modules take precedence."""

    def __init__(self) -> None:
        self._sources: dict[str, bytes] = {}

    def add(self, name: str, source: bytes) -> None:
        if self._has_loaded(name):
            return
        self._sources[name] = source
        parent = name.rpartition(".")[0]
        if self._has_loaded(parent) and not hasattr(sys.modules[parent], "__path__"):
            sys.modules[parent].__path__ = []  # type: ignore[attr-defined]

    def _has_loaded(self, name: str) -> bool:
        return getattr(sys.modules.get(name), "__loader__", None) is self

    def find_spec(
        self, name: str, path: object = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name in self._sources:
            spec = importlib.util.spec_from_loader(name, self, origin=_file(name))
            if spec is not None:
                spec.has_location = True
            return spec
        if self.is_package(name):
            return importlib.machinery.ModuleSpec(name, None, is_package=True)
        return None

    def is_package(self, fullname: str) -> bool:
        return any(name.startswith(fullname + ".") for name in self._sources)

    def get_source(self, fullname: str) -> str:
        return importlib.util.decode_source(self._sources[fullname])

    def get_code(self, fullname: str) -> CodeType:
        code = self.source_to_code(self._sources[fullname], _file(fullname))
        # Tracebacks then show the lines even if Python does not query the loader for them.
        text = self.get_source(fullname)
        lines = text.splitlines(keepends=True)
        linecache.cache[_file(fullname)] = (len(text), None, lines, _file(fullname))
        return code


def _file(name: str) -> str:
    return f"_deploy_internal.{name}"


_registered = _RegisteredSources()


def register(name: str, source: bytes) -> None:
    """Makes a module importable by a dotted name. No effect if it is registered and imported."""
    if _registered not in sys.meta_path:
        sys.meta_path.append(_registered)
    _registered.add(name, source)
