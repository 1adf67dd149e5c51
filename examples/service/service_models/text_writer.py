from collections.abc import Iterator

import torch
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel


class TextWriter(torch.nn.Module):
    """Continues a text, byte by byte, with GPT-2."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.network = GPT2LMHeadModel(config)

    def forward(self, prompt: torch.Tensor, count: int) -> Iterator[int]:
        """Yields the most probable next byte, `count` times.

        The keys and values of what was read stay in the generator, so each step computes one place.
        """
        cache = DynamicCache(config=self.network.config)
        unread = prompt.unsqueeze(0)
        for _ in range(count):
            # Not around the yield: the mode would hold for what the worker runs between two items.
            with torch.inference_mode():
                scores = self.network(input_ids=unread, past_key_values=cache).logits
            unread = scores[:, -1].argmax(dim=-1, keepdim=True)
            yield int(unread)
