# SPDX-License-Identifier: BSD-3-Clause
"""make_models.py FOLDER: one model in every format that loadModel takes, and files that it refuses."""

import sys
import zipfile
from pathlib import Path

import stored_models as models
import torch
from torch.package import PackageExporter

folder = Path(sys.argv[1])
torch.manual_seed(0)
# A model that AOTInductor compiles contains this process's number of threads.
torch.set_num_threads(1)


def rewritten(source: str, name: str, change) -> None:  # type: ignore[no-untyped-def]
    """Copies an archive. `change` replaces the content of each record, or drops it."""
    with zipfile.ZipFile(folder / source) as old, zipfile.ZipFile(folder / name, "w") as new:
        for entry in old.infolist():
            data = change(entry.filename, old.read(entry))
            if data is not None:
                new.writestr(entry.filename, data)


layers = models.Layers().eval()
scripted = models.Scripted().eval()
scripted.load_state_dict(layers.state_dict())
x, y = torch.randn(3, 2048), torch.randn(3, 2048)
several = ((torch.randn(4), torch.randn(4)),), {"scale": torch.randn(4)}

with PackageExporter(str(folder / "package.pt")) as exporter:
    exporter.intern("stored_models")
    exporter.save_pickle("model", "model.pkl", layers)
torch.jit.script(scripted).save(str(folder / "script.pt"))
torch.jit.freeze(torch.jit.script(scripted)).save(str(folder / "frozen.pt"))
torch.jit.script(models.InPlace()).save(str(folder / "in_place.pt"))
with torch.no_grad():
    torch.jit.trace(layers, (x, y)).save(str(folder / "traced.pt"))
    exported = torch.export.export(layers, (x, y))
    torch.export.save(exported, folder / "exported.pt2")
    torch._inductor.aoti_compile_and_package(exported, package_path=str(folder / "compiled.pt2"))
    torch._inductor.aoti_compile_and_package(
        torch.export.export(models.Several(), *several), package_path=str(folder / "several.pt2")
    )
    values = models.Values(x, y, layers(x, y))
torch.jit.script(values).save(str(folder / "values.pt"))

made = (folder / "script.pt").read_bytes()
(folder / "truncated.pt").write_bytes(made[: len(made) // 2])
(folder / "script_under_another_name.onnx").write_bytes(made)
rewritten("compiled.pt2", "for_cuda.pt2", lambda name, data:
          data.replace(b'"cpu"', b'"cuda"') if name.endswith("_metadata.json") else data)
rewritten("compiled.pt2", "without_library.pt2",
          lambda name, data: None if name.endswith(".so") else data)
rewritten("compiled.pt2", "no_library.pt2",
          lambda name, data: b"not ELF" * 1000 if name.endswith(".so") else data)
