# SPDX-License-Identifier: BSD-3-Clause
"""What picture files show: the parts of a batch job around efficientnet.pt, a package of package_classifier.py.

    isopool batch build/models/efficientnet.pt:model/model.pkl build/pictures -o build/labels \
        --preprocess examples/batch/pictures.py:decode --postprocess examples/batch/pictures.py:Label \
        --batch-size 16 --collate stack --timeout 10s --memory 1GiB
"""

import sys
from pathlib import Path

import numpy
import torch
from PIL import Image

sys.path.append(str(Path(__file__).resolve().parents[1]))

from package_classifier import imagenet_labels

SIDE = 224  # EfficientNet-Lite0 was trained with these three values
MEAN = 127.0
SPREAD = 128.0


def decode(path: str) -> torch.Tensor:
    """Floats of 3 x 224 x 224: one item of a batch. Raises what Pillow raises if the file is no picture."""
    with Image.open(path) as file:
        picture = file.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    pixels = torch.from_numpy(numpy.array(picture, numpy.float32))
    return (pixels.permute(2, 0, 1) - MEAN) / SPREAD


class Label:
    """From the network's 1000 numbers for one picture to two columns. Each worker makes one instance."""

    def __init__(self) -> None:
        self._names = imagenet_labels()

    def __call__(self, logits: torch.Tensor) -> dict[str, object]:
        score, best = logits.softmax(dim=0).max(dim=0)
        return {"label": self._names[int(best)], "score": float(score)}
