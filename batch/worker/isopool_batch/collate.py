# SPDX-License-Identifier: BSD-3-Clause
"""How the items of a batch become the arguments of the model."""

from typing import Any

from isopool_batch import packages

LIST, STACK, PAD, BUCKET = "list", "stack", "pad", "bucket"


def arguments(collate: str, items: list[Any]) -> tuple[Any, ...]:
    """The model's arguments: the list, a stacked tensor, or a padded tensor and a tensor of lengths."""
    if collate == LIST:
        return (items,)
    if collate == STACK:
        return (_torch().stack([_tensor(item) for item in items]),)
    return _padded([_tensor(item) for item in items])


def length(item: Any) -> int:
    """By which items are sorted into batches of similar length."""
    shape = getattr(item, "shape", None)
    try:
        return int(shape[0]) if shape is not None else len(item)
    except (IndexError, TypeError):
        raise TypeError(f"an item of type {type(item).__name__} has no length: tensors or lists are needed") from None


def _padded(tensors: list[Any]) -> tuple[Any, Any]:
    torch = _torch()
    if not all(tensor.dim() for tensor in tensors):
        raise TypeError("an item is a single number: tensors with a first dimension are needed for padding")
    rest = {tuple(tensor.shape[1:]) for tensor in tensors}
    if len(rest) > 1:
        shapes = ", ".join(map(str, sorted(rest)))
        raise ValueError(f"items differ in other dimensions than the first, which is padded: {shapes}")
    lengths = torch.tensor([tensor.shape[0] for tensor in tensors])
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True), lengths


def _tensor(item: Any) -> Any:
    torch = _torch()
    if isinstance(item, torch.Tensor):
        return item
    try:
        # A copy: an array may be read-only, which a tensor can't be.
        return torch.tensor(item)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"an item of type {type(item).__name__} can't become a tensor: {error}") from error


def _torch() -> Any:
    return packages.need("torch", "collate by stack, pad or bucket")
