import torch
from efficientnet_lite_pytorch import EfficientNet
from torch.nn import functional


class PictureClassifier(torch.nn.Module):
    """From raw pixels to the probabilities of the 1000 ImageNet classes.

    The model prepares the picture itself: callers in any language need no image library and can't
    normalise wrongly.
    """

    SIDE = 224  # EfficientNet-Lite0 was trained with these three values
    MEAN = 127.0
    SPREAD = 128.0

    def __init__(self, network: EfficientNet) -> None:
        super().__init__()
        self.network = network

    @torch.no_grad()
    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """pixels: uint8, height x width x 3 (RGB), of any size. Result: 1000 floats, sum 1."""
        if pixels.dtype != torch.uint8 or pixels.dim() != 3 or pixels.size(2) != 3:
            raise ValueError(
                "expected uint8 pixels of height x width x 3, "
                f"got {pixels.dtype} {list(pixels.shape)}"
            )
        logits: torch.Tensor = self.network(self.prepare(pixels))
        return logits.softmax(dim=1)[0]

    def prepare(self, pixels: torch.Tensor) -> torch.Tensor:
        planes = pixels.permute(2, 0, 1).unsqueeze(0).float()
        resized = functional.interpolate(
            planes, (self.SIDE, self.SIDE), mode="bicubic", antialias=True
        )
        return (resized.clamp(0, 255) - self.MEAN) / self.SPREAD
