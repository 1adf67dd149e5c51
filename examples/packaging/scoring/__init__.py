# SPDX-License-Identifier: BSD-3-Clause
"""A model with the dependencies that models have: code of its own, numpy, something for people only."""
