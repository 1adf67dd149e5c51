# SPDX-License-Identifier: BSD-3-Clause
"""The package that Python programs for multipy import, as aliases of isopool's names."""

from isopool import __version__

__all__ = ["__version__"]
