# SPDX-License-Identifier: BSD-3-Clause
"""The modules that workers get as text, under the name isopool_by_value: a worker need not have isopool.

They import only what every worker has: the standard library, torch and cloudpickle. payload.py is used on both sides.
"""
