# SPDX-License-Identifier: BSD-3-Clause
"""Embeds texts with all-MiniLM-L6-v2: a batch job, both parts of which are classes of this file.

    isopool batch examples/batch/texts.py:Embed build/texts.jsonl -o build/vectors --format parquet \
        --column text --preprocess examples/batch/texts.py:Tokens --batch-size 16 --collate bucket --timeout 10s

With "bucket", items of about the same length are in one call, so that little of it is padding.
"""

import os
import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parents[1]))
os.environ["HF_HUB_OFFLINE"] = "1"

from package_sentence_encoder import MAX_TOKENS, build_encoder, model_folder


class Tokens:
    """From a text to its token IDs. The beginning and the end of the text are tokens, too."""

    def __init__(self) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_str((model_folder() / "tokenizer.json").read_text())
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)

    def __call__(self, text: str) -> torch.Tensor:
        return torch.tensor(self._tokenizer.encode(text).ids)


class Embed:
    """From the token IDs of several texts to a vector of 384 numbers for each, of length 1."""

    def __init__(self) -> None:
        self._bert = build_encoder(model_folder()).bert

    def __call__(self, tokens: torch.Tensor, lengths: torch.Tensor) -> dict[str, torch.Tensor]:
        """tokens: texts x the longest length, behind the end of a text zeros, which stand for padding."""
        mask = (torch.arange(tokens.shape[1]) < lengths.unsqueeze(1)).long()
        states = self._bert(input_ids=tokens, attention_mask=mask).last_hidden_state
        mean = (states * mask.unsqueeze(-1)).sum(dim=1) / lengths.unsqueeze(1)
        return {"embedding": torch.nn.functional.normalize(mean, dim=1)}
