# SPDX-License-Identifier: BSD-3-Clause
"""The work that every route is asked to do; importable wherever a route runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# A tensor or an array, whichever the route carries.
Data = Any


def identity(x: Data) -> Data:
    return x


def made(x: Data) -> Data:
    return x + 1


OPERATIONS: dict[str, Callable[[Data], Data]] = {"identity": identity, "made": made}
# What `made` adds; the answers are checked against it.
ADDED = {"identity": 0, "made": 1}
