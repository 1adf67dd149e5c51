# SPDX-License-Identifier: BSD-3-Clause
"""The part of a batch job that runs in workers, which get these modules as text. calls.py is what the driver calls.

A worker need not have isopool, so no module here imports it; nor may one read files beside itself.
"""
