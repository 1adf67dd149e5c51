# SPDX-License-Identifier: BSD-3-Clause
"""isopool-worker --preloads-of: which modules to preload for a package. ISOPOOL_WORKER names the program."""

import os
import subprocess
import zipfile

import pytest
import torch

WORKER = os.environ["ISOPOOL_WORKER"]
THREAD = "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"


@pytest.fixture
def modules(tmp_path):
    """A folder of the workers' Python with a library whose parts are imported when they are used."""
    folder = tmp_path / "modules"
    (folder / "lazy_library").mkdir(parents=True)
    (folder / "lazy_library/__init__.py").touch()
    (folder / "lazy_library/part.py").write_text("import time\ntime.sleep(0.2)\n")
    (folder / "with_a_thread.py").write_text(THREAD)
    return folder


def preloads_of(file, folder):
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run([WORKER, "--preloads-of", file], env=environment, text=True, capture_output=True)


def package(tmp_path, *externs):
    file = tmp_path / "model.pt"
    with torch.package.PackageExporter(file) as exporter:
        exporter.extern([*externs])
        lines = [f"import {name}" for name in externs]
        exporter.save_source_string("entry", "\n".join(lines) + "\n")
    return file


def test_prints_each_module_and_the_setting(modules, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(modules)
    found = preloads_of(package(tmp_path, "lazy_library", "lazy_library.part"), modules)
    assert found.returncode == 0, found.stderr
    *lines, setting = found.stdout.splitlines()
    assert [line.split()[-1] for line in lines] == ["lazy_library", "lazy_library.part"]
    assert float(lines[1].split()[0]) >= 0.2
    assert setting == "ISOPOOL_PRELOAD_MODULES=lazy_library,lazy_library.part"


def test_leaves_out_modules_that_a_zygote_could_not_preload(modules, tmp_path, monkeypatch):
    only_here = tmp_path / "only_here"
    only_here.mkdir()
    (only_here / "not_there_at_all.py").touch()
    monkeypatch.syspath_prepend(modules)
    monkeypatch.syspath_prepend(only_here)
    file = package(tmp_path, "with_a_thread", "not_there_at_all", "lazy_library")
    found = preloads_of(file, modules)
    assert found.returncode == 0, found.stderr
    assert "with_a_thread: not preloaded: it starts 1 threads" in found.stdout
    assert "not_there_at_all: not imported: ModuleNotFoundError" in found.stdout
    assert found.stdout.splitlines()[-1] == "ISOPOOL_PRELOAD_MODULES=lazy_library"


def test_names_nothing_that_a_zygote_has_anyway(tmp_path):
    found = preloads_of(package(tmp_path, "torch.nn", "json"), tmp_path)
    assert found.returncode == 0, found.stderr
    assert found.stdout == f"{tmp_path}/model.pt needs no module that a zygote does not have\n"


def test_refuses_a_file_that_is_no_package(tmp_path):
    (tmp_path / "text.pt").write_text("no archive")
    with zipfile.ZipFile(tmp_path / "other.pt", "w") as archive:
        archive.writestr("other/data.pkl", "")
    for name in ("text.pt", "other.pt", "missing.pt"):
        found = preloads_of(tmp_path / name, tmp_path)
        assert found.returncode == 1
        assert found.stderr.startswith("isopool-worker: "), found.stderr
        assert found.stdout == ""


