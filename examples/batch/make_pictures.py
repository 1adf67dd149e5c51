# SPDX-License-Identifier: BSD-3-Clause
"""Makes many picture files of the six pictures that package_classifier.py knows: input for pictures.py.

A file is a part of a picture, mirrored or not, darker or brighter; its name begins with what it shows. The same
arguments give the same files. With --broken, further files are what a large collection has, too: a file that is cut
off, a text, an empty file, and one of 160 kB that needs 800 MB of memory when it is decoded.

    python examples/batch/make_pictures.py --out build/pictures --count 3000 --broken 8
"""

import argparse
import io
import random
import sys
from pathlib import Path

import numpy
from PIL import Image, ImageEnhance, ImageOps

sys.path.append(str(Path(__file__).resolve().parents[1]))

from package_classifier import PICTURES, read_pixels

LONGEST_SIDE = 320
EACH_PNG = 10  # one file of so many
HUGE_SIDE = 13_000  # below the size that Pillow refuses


def changed(picture: Image.Image, chance: random.Random) -> Image.Image:
    """At least 80 % of the picture's width and height."""
    width, height = (round(side * chance.uniform(0.8, 1)) for side in picture.size)
    left = chance.randint(0, picture.width - width)
    top = chance.randint(0, picture.height - height)
    part = picture.crop((left, top, left + width, top + height))
    if chance.random() < 0.5:
        part = ImageOps.mirror(part)
    part = ImageEnhance.Brightness(part).enhance(chance.uniform(0.7, 1.3))
    part.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    return part


def encoded(picture: Image.Image, kind: str) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **({"quality": 85} if kind == "JPEG" else {}))
    return file.getvalue()


def broken(number: int, whole: bytes) -> tuple[str, bytes]:
    kinds = ("cut", "text", "empty", "huge")
    kind = kinds[number % len(kinds)]
    if kind == "cut":
        return f"{kind}.jpg", whole[: len(whole) // 3]
    if kind == "text":
        return f"{kind}.jpg", b"<html><body>404: this picture has moved</body></html>\n"
    if kind == "empty":
        return f"{kind}.jpg", b""
    return f"{kind}.png", encoded(Image.new("L", (HUGE_SIDE, HUGE_SIDE)), "PNG")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="created if missing")
    parser.add_argument("--count", type=int, default=3000, metavar="N", help="pictures (default: %(default)s)")
    parser.add_argument("--broken", type=int, default=0, metavar="N", help="further, broken files (default: none)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="(default: %(default)s)")
    options = parser.parse_args()

    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    pictures = [(each.name, Image.fromarray(numpy.asarray(read_pixels(each)))) for each in PICTURES]
    for number in range(options.count):
        name, picture = pictures[number % len(pictures)]
        part = changed(picture, random.Random(f"{options.seed} {number}"))
        kind, ending = ("PNG", "png") if number % EACH_PNG == 0 else ("JPEG", "jpg")
        (out / f"{name}-{number:05}.{ending}").write_bytes(encoded(part, kind))
    whole = encoded(pictures[0][1], "JPEG")
    for number in range(options.broken):
        name, content = broken(number, whole)
        (out / f"broken-{number:05}-{name}").write_bytes(content)
    print(f"{out}: {options.count} pictures, {options.broken} broken files")


if __name__ == "__main__":
    main()
