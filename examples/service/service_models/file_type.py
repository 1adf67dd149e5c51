import torch
from magika import Magika


class FileType:
    """Says what kind of file some bytes are. Magika finds its network in its own package."""

    def __init__(self) -> None:
        self._magika = Magika()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        # A session of ONNX Runtime can't be pickled: each worker makes its own.
        return (FileType, ())

    def __call__(self, content: torch.Tensor) -> tuple[str, float]:
        """From bytes, as uint8, to a label and its score."""
        result = self._magika.identify_bytes(content.numpy().tobytes())
        return str(result.output.label), float(result.score)
