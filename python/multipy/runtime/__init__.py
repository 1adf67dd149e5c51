# SPDX-License-Identifier: BSD-3-Clause
"""Interpreters beside this one: each is a process of isopool's."""

from isopool import InterpreterManager

__all__ = ["InterpreterManager"]
