"""A transformer that returns values of different kinds, as services often do."""

import torch
from transformers import BertConfig, BertModel


class Reader(torch.nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.bert = BertModel(config)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, object]:
        answer = self.bert(input_ids=input_ids, attention_mask=attention_mask)
        longest = answer.last_hidden_state.norm(dim=-1).argmax(-1)
        return {
            **answer,
            "words": int(attention_mask.sum()),
            "longest": [(int(place), "longest") for place in longest],
            "warnings": [],
        }
