# SPDX-License-Identifier: BSD-3-Clause
"""make_exported.py FOLDER: small.pt2 and large.pt2, exported models with 4 KiB and with 64 MiB of weights."""

import sys
from pathlib import Path

import torch

folder = Path(sys.argv[1])
for name, width in ("small.pt2", 32), ("large.pt2", 4096):
    layer = torch.nn.Linear(width, width).eval()
    exported = torch.export.export(layer, (torch.ones(1, width),))
    torch.export.save(exported, folder / name)
