# SPDX-License-Identifier: BSD-3-Clause
"""make_models.py FOLDER: one model in every format that loadModel takes, and files that it refuses."""

import sys
import zipfile
from pathlib import Path

import onnx_file as onnx
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
    linear = [onnx.weight("weight", layers.linear.weight.t()), onnx.weight("bias", layers.linear.bias)]
    shift = onnx.weight("shift", layers.shift)
    elsewhere = onnx.external_weight("shift", layers.shift, "weights.bin")
torch.jit.script(values).save(str(folder / "values.pt"))

operations = [
    onnx.node("MatMul", ["x", "weight"], ["product"]),
    onnx.node("Add", ["product", "bias"], ["linear"]),
    onnx.node("Relu", ["linear"], ["positive"]),
    onnx.node("Mul", ["positive", "y"], ["scaled"]),
    onnx.node("Add", ["scaled", "shift"], ["z"]),
]
pair = [onnx.value("x", ["rows", 2048]), onnx.value("y", ["rows", 2048])]
result = [onnx.value("z", ["rows", 2048])]
stored = onnx.model(operations, pair, result, [*linear, shift])
(folder / "model.onnx").write_bytes(stored)
(folder / "onnx_under_another_name.pt").write_bytes(stored)
(folder / "cut.onnx").write_bytes(stored[: len(stored) // 2])
(folder / "external.onnx").write_bytes(onnx.model(operations, pair, result, [*linear, elsewhere]))
(folder / "unknown_operator.onnx").write_bytes(
    onnx.model([onnx.node("NoSuchOperator", ["x"], ["z"])], [onnx.value("x", [2])], [onnx.value("z", [2])])
)
# A shape that follows from the input's, one that does not, one that is wrong, and the input itself.
(folder / "several.onnx").write_bytes(
    onnx.model(
        [
            onnx.node("Neg", ["x"], ["negative"]),
            onnx.node("NonZero", ["x"], ["places"]),
            onnx.node("Transpose", ["x"], ["transposed"]),
        ],
        [onnx.value("x", ["rows", "columns"])],
        [
            onnx.value("negative", ["rows", "columns"]),
            onnx.value("places", [2, "count"], torch.int64),
            onnx.value("transposed", ["rows", "columns"]),
            onnx.value("x", ["rows", "columns"]),
        ],
    )
)

made = (folder / "script.pt").read_bytes()
(folder / "truncated.pt").write_bytes(made[: len(made) // 2])
(folder / "script_under_another_name.onnx").write_bytes(made)
rewritten("compiled.pt2", "for_cuda.pt2", lambda name, data:
          data.replace(b'"cpu"', b'"cuda"') if name.endswith("_metadata.json") else data)
rewritten("compiled.pt2", "without_library.pt2",
          lambda name, data: None if name.endswith(".so") else data)
rewritten("compiled.pt2", "no_library.pt2",
          lambda name, data: b"not ELF" * 1000 if name.endswith(".so") else data)
