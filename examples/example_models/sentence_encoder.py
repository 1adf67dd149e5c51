import torch
from tokenizers import Tokenizer
from transformers import BertModel


class SentenceEncoder(torch.nn.Module):
    """From sentences to vectors of length 1. Their dot product measures how close the meanings are.

    The tokenizer is part of the model and is pickled as its own JSON: a worker that loads the model
    needs neither a file nor a hub.
    """

    def __init__(self, bert: BertModel, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.bert = bert
        self.tokenizer = tokenizer

    @torch.no_grad()
    def forward(self, sentences: list[str]) -> torch.Tensor:
        """Returns one row per sentence. A row does not depend on the other sentences."""
        token_ids, mask = self.tokenize(sentences)
        states = self.bert(input_ids=token_ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(states.dtype)
        mean = (states * weights).sum(dim=1) / weights.sum(dim=1)
        return torch.nn.functional.normalize(mean, dim=1)

    def tokenize(self, sentences: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids and mask, as wide as the longest sentence of this call."""
        encodings = self.tokenizer.encode_batch(list(sentences))
        token_ids = torch.tensor([encoding.ids for encoding in encodings])
        mask = torch.tensor([encoding.attention_mask for encoding in encodings])
        return token_ids, mask
