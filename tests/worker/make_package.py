# SPDX-License-Identifier: BSD-3-Clause
"""make_package.py FILE: writes a package with one Probe, model/model.pkl."""

import sys

import probe
import torch
from torch.package import PackageExporter

torch.manual_seed(0)
with PackageExporter(sys.argv[1]) as exporter:
    exporter.extern(["sys", "numpy", "numpy.**"])
    exporter.intern("probe")
    exporter.save_pickle("model", "model.pkl", probe.Probe())
