"""Detects whether outputs are up to date with their sources, so that a second run does nothing.

Imports no large module: a run that finds everything up to date takes a fraction of a second.
"""

import hashlib
import importlib.metadata
import json
import sys
from pathlib import Path


def version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        sys.exit(f"{package} is not installed: install examples/requirements.txt")


class BuildStamp:
    """Stores, in a hidden file beside the outputs, their sources and packages."""

    def __init__(self, file: Path, sources: list[Path], packages: list[str]) -> None:
        self._file = file
        self._origin = {
            "python": f"{sys.version_info.major}.{sys.version_info.minor}",
            "packages": {name: version_of(name) for name in packages},
            "sources": {
                path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sources
            },
        }

    def matches(self, outputs: list[Path]) -> bool:
        try:
            stamp = json.loads(self._file.read_text())
        except (OSError, ValueError):
            return False
        return bool(stamp == self._describe(outputs))

    def write(self, outputs: list[Path]) -> None:
        """Call last: an interrupted run leaves no stamp that matches."""
        self._file.write_text(json.dumps(self._describe(outputs), indent=1) + "\n")

    def _describe(self, outputs: list[Path]) -> dict[str, object]:
        sizes = {path.name: path.stat().st_size if path.exists() else None for path in outputs}
        return {**self._origin, "outputs": sizes}
