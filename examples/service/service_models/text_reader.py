import torch
from rapidocr_onnxruntime import RapidOCR

LONGEST_SIDE = 384  # pictures are scaled to it before text is searched: bounds the time of a call


class TextReader:
    """Reads the text in a picture. RapidOCR finds its three networks in its own package."""

    def __init__(self) -> None:
        self._engine = RapidOCR(det_limit_side_len=LONGEST_SIDE, det_limit_type="max")

    def __reduce__(self) -> tuple[type, tuple[()]]:
        # Sessions of ONNX Runtime can't be pickled: each worker makes its own engine.
        return (TextReader, ())

    def __call__(self, picture: torch.Tensor) -> tuple[list[str], torch.Tensor]:
        """From [height, width, 3] of uint8 to the lines of text, and the confidence of each."""
        found, _ = self._engine(picture.numpy())
        lines = found or []
        # Never empty: an empty list has no type in C++.
        texts = [text for _, text, _ in lines] or [""]
        return texts, torch.tensor([float(score) for _, _, score in lines])
