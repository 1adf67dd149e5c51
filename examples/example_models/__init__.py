"""The models of the examples: ordinary PyTorch that does not depend on isopool.

torch.package copies these modules into the packages, so a worker runs exactly this code and needs
no examples/ folder.
"""
