# SPDX-License-Identifier: BSD-3-Clause
"""A digest of an item that is equal in each process: not that of its pickle, which depends on shared objects and the
order of sets."""

import hashlib
import sys
from collections.abc import Mapping
from typing import Any

# Of an item as large as this, the rest does not count.
_MOST_BYTES = 1 << 20
_MOST_PARTS = 10_000
_MOST_NUMBERS = 1 << 16


def of_item(item: Any) -> str:
    """Of objects of unknown classes only the class counts."""
    hashed = hashlib.sha256()
    left = _MOST_PARTS
    parts = [item]
    while parts and left > 0:
        left -= 1
        each = parts.pop()
        hashed.update(f"{type(each).__name__}:".encode())
        if each is None or isinstance(each, (bool, int, float, complex)):
            hashed.update(repr(each).encode())
        elif isinstance(each, str):
            hashed.update(each[:_MOST_BYTES].encode("utf-8", "surrogatepass"))
        elif isinstance(each, (bytes, bytearray)):
            hashed.update(each[:_MOST_BYTES])
        elif isinstance(each, (list, tuple)):
            hashed.update(f"{len(each)}".encode())
            parts.extend(each[:left])
        elif isinstance(each, Mapping):
            hashed.update(f"{len(each)}".encode())
            for key in list(each)[:left]:
                parts += [key, each[key]]
        elif isinstance(each, (set, frozenset)):
            hashed.update("".join(sorted(map(of_item, each))).encode())
        else:
            _add_array(hashed, each)
        hashed.update(b"\0")
    return hashed.hexdigest()[:16]


def _add_array(hashed: Any, value: Any) -> None:
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor) and str(value.layout) == "torch.strided":
        value = value.detach().cpu()
        hashed.update(f"{value.dtype}{tuple(value.shape)}".encode())
        value = value.contiguous().reshape(-1).view(torch.uint8) if value.numel() else value
        hashed.update(bytes(value[:_MOST_NUMBERS].tolist()))
    elif numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)) and value.dtype.kind != "O":
        value = numpy.ascontiguousarray(value)
        hashed.update(f"{value.dtype.str}{value.shape}".encode())
        hashed.update(value.tobytes()[:_MOST_BYTES])
