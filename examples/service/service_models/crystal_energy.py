import torch
from chgnet.model import CHGNet
from pymatgen.core import Lattice, Structure


class CrystalEnergy(torch.nn.Module):
    """The energy of a crystal, and the forces on its atoms, by the graph network CHGNet."""

    def __init__(self, network: CHGNet) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, lattice: torch.Tensor, numbers: torch.Tensor, places: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """From the lattice [3, 3], the atomic numbers [n] and the fractional coordinates [n, 3]."""
        crystal = Structure(Lattice(lattice.numpy()), numbers.tolist(), places.numpy())
        # Forces are derivatives of the energy, also if the caller has turned gradients off.
        with torch.enable_grad():
            answer = self.network.predict_structure(crystal)
        return {name: torch.as_tensor(answer[key]) for name, key in FIGURES.items()}


FIGURES = {"energy": "e", "forces": "f", "stress": "s"}
