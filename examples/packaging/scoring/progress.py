# SPDX-License-Identifier: BSD-3-Clause
"""For training at a terminal; nothing that a service needs."""

from tqdm import tqdm


def shown(rows):  # type: ignore[no-untyped-def]
    return tqdm(rows)
