# SPDX-License-Identifier: BSD-3-Clause
"""What is in force in a pool."""

from typing import NamedTuple


class Setting(NamedTuple):
    """One setting of a pool as it is in force: see docs/configuration.md for the names."""

    name: str
    value: str
    source: str  # "program", "default", "environment ISOPOOL_SPARES", "file PATH:LINE", ...
