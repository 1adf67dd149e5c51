#!/usr/bin/env python3
"""Packages a small BERT of Hugging Face. It takes keyword arguments and returns mixed values.

Its weights are random, so nothing is downloaded. bert.txt gets its answer to the input of bert.cc.
"""

import argparse
from pathlib import Path

import torch
from example_models.bert import Reader
from package_file import write_package
from transformers import BertConfig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="gets bert.pt")
    file = parser.parse_args().out / "bert.pt"
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    model = Reader(config).eval()
    write_package(file, model, intern=["example_models.**"], extern=["transformers.**"])
    with torch.no_grad():
        words = torch.arange(8).reshape(1, 8)
        answer = model(input_ids=words, attention_mask=torch.ones_like(words))
    file.with_suffix(".txt").write_text(f"{answer['pooler_output'].sum().item():.4f}\n")
    print(f"wrote {file}; now: bert {file}")


if __name__ == "__main__":
    main()
