#!/usr/bin/env python3
"""Packages the models that the benchmarks call."""

import argparse
import warnings
from pathlib import Path

import torch
from bench_models import calls, transformer, weights
from torch.package import PackageExporter


def write(file: Path, objects: dict[str, torch.nn.Module]) -> None:
    part = file.with_suffix(".part")
    with PackageExporter(part) as exporter:
        exporter.extern(["ctypes", "os", "signal", "time"])
        exporter.intern("bench_models.**")
        for name, model in objects.items():
            exporter.save_pickle("model", f"{name}.pkl", model.eval())
    part.rename(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument(
        "--megabytes", type=int, nargs="*", default=[500], help="of the large models' weights"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    warnings.filterwarnings("ignore", "TypedStorage is deprecated")
    warnings.filterwarnings("ignore", ".*torch.jit", DeprecationWarning)
    write(
        options.out / "calls.pt",
        {
            "identity": calls.Identity(),
            "add_one": calls.AddOne(),
            "clone": calls.Clone(),
            "keep": calls.Keep(),
            "remember": calls.Remember(),
            "counted": calls.Counted(),
            "crash": calls.Crash(),
        },
    )
    model = transformer.Transformer().eval()
    write(options.out / "transformer.pt", {"transformer": model})
    with torch.inference_mode():
        traced = torch.jit.trace(model, torch.ones(16, 64))
    torch.jit.save(traced, options.out / "transformer.ts")
    for megabytes in options.megabytes:
        large = options.out / f"weights-{megabytes}.pt"
        if not large.exists():
            write(large, {"weights": weights.Weights(megabytes)})


if __name__ == "__main__":
    main()
