# SPDX-License-Identifier: BSD-3-Clause
"""make_operator_user.py FOLDER LIBRARY: models that need the operators of operators.cc."""

import sys
from pathlib import Path

import operator_user
import torch
from torch.package import PackageExporter

folder = Path(sys.argv[1])
torch.set_num_threads(1)
torch.ops.load_library(sys.argv[2])
torch.library.register_fake("isopool_test::twice_plus", lambda x, y: torch.empty_like(x))

with PackageExporter(str(folder / "operators.pt")) as exporter:
    exporter.intern("operator_user")
    exporter.save_pickle("model", "model.pkl", operator_user.OperatorUser())

torch.jit.script(operator_user.PlainUser()).save(str(folder / "operators_script.pt"))
with torch.no_grad():
    exported = torch.export.export(operator_user.PlainUser(), (torch.ones(3),))
    torch._inductor.aoti_compile_and_package(
        exported, package_path=str(folder / "operators_compiled.pt2")
    )
