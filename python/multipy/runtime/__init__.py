# SPDX-License-Identifier: BSD-3-Clause
"""Python interpreters beside this one. Each is a worker process of isopool."""

from isopool import InterpreterManager

__all__ = ["InterpreterManager"]
