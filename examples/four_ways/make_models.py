#!/usr/bin/env python3
"""Stores one model in the four ways that isopool runs: TorchScript by script and by trace, a
torch.package, and a .pt2 compiled by AOTInductor (which needs a C++ compiler and takes a while).
"""

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from four_ways.digits import Digits
from package_file import write_package


def compile_model(model: torch.nn.Module, pictures: torch.Tensor, file: Path) -> None:
    # The compiled code contains this process's number of threads. Several workers share the
    # processors, so each uses one thread.
    torch.set_num_threads(1)
    batch = torch.export.Dim("batch", min=1, max=64)
    exported = torch.export.export(model, (pictures,), dynamic_shapes={"pictures": {0: batch}})
    unfinished = file.with_name("unfinished.pt2")
    torch._inductor.aoti_compile_and_package(exported, package_path=str(unfinished))
    os.replace(unfinished, file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="gets the files")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model = Digits().eval()
    pictures = torch.rand(8, 1, 28, 28)
    with torch.no_grad():
        torch.jit.script(model).save(folder / "digits_script.pt")
        torch.jit.trace(model, pictures).save(folder / "digits_trace.pt")
        write_package(folder / "digits_package.pt", model, intern=["four_ways.**"])
        compile_model(model, pictures, folder / "digits_compiled.pt2")
    print(f"wrote digits_* to {folder}; now: four_ways {folder}")


if __name__ == "__main__":
    main()
