# SPDX-License-Identifier: BSD-3-Clause
"""A model with typical dependencies: its own code, numpy, and a library for progress bars."""
