"""The models of the examples: ordinary PyTorch, knowing nothing of isopool.

torch.package copies these modules into the packages, so a worker runs exactly this code and needs
no examples/ folder.
"""
