# SPDX-License-Identifier: BSD-3-Clause
"""The tritonserver of the nvidia-pytriton package, with two models on its Python backend.

The package's own layer (pytriton, which adds a process and a copy) is not used.
"""

from __future__ import annotations

import importlib.metadata
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from operations import OPERATIONS

START_SECONDS = 60
STOP_SECONDS = 10

CONFIGURATION = """\
name: "{name}"
backend: "python"
max_batch_size: 0
input [{{ name: "x" data_type: TYPE_FP32 dims: [-1] }}]
output [{{ name: "y" data_type: TYPE_FP32 dims: [-1] }}]
instance_group [{{ count: 1 kind: KIND_CPU }}]
"""

MODEL = """\
import sys

sys.path.insert(0, {folder!r})
import operations
import triton_python_backend_utils as triton


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = triton.get_input_tensor_by_name(request, "x").as_numpy()
            y = triton.Tensor("y", operations.{name}(x))
            answers.append(triton.InferenceResponse([y]))
        return answers
"""


class TritonServer:
    """Runs until close(). Names of its shared memory contain `prefix`; clients' may do so too."""

    def __init__(self) -> None:
        self.prefix = f"isopool_peers_{os.getpid()}_"
        self._folder = tempfile.TemporaryDirectory(prefix="triton-")
        folder = Path(self._folder.name)
        write_models(folder / "models")
        server = lay_out_backend(folder / "backends")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self._log = folder / "log"
        # The stub embeds Python, ignores PYTHONPATH and finds the packages of the virtual
        # environment whose python3 is the first in PATH.
        environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        }
        command = [
            str(server),
            f"--model-repository={folder / 'models'}",
            f"--backend-directory={folder / 'backends'}",
            f"--backend-config=python,shm-region-prefix-name={self.prefix}",
            "--disable-auto-complete-config",
            "--http-address=127.0.0.1",
            f"--http-port={self.address.split(':')[1]}",
            "--allow-grpc=false",
            "--allow-metrics=false",
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            try:
                ended = self._process.wait(0.05)
                raise RuntimeError(f"tritonserver ended with {ended}: {self._last_complaint()}")
            except subprocess.TimeoutExpired:
                pass
            try:
                with urllib.request.urlopen(f"http://{self.address}/v2/health/ready", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                pass
        raise RuntimeError(f"tritonserver was not ready after {START_SECONDS} s")

    def _last_complaint(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        complaints = [line for line in lines if "rror" in line]
        return (complaints or lines or ["it printed nothing"])[-1].strip("| ")

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_SECONDS)
        for left in Path("/dev/shm").glob(f"{self.prefix}*"):
            left.unlink(missing_ok=True)
        self._folder.cleanup()


def write_models(repository: Path) -> None:
    for name in OPERATIONS:
        version = repository / name / "1"
        version.mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(CONFIGURATION.format(name=name))
        text = MODEL.format(folder=str(Path(__file__).resolve().parent), name=name)
        (version / "model.py").write_text(text)


def lay_out_backend(backends: Path) -> Path:
    """Makes the backend's folder, with this Python's stub where the backend looks for it. Returns
    the server's program."""
    server = Path(str(importlib.metadata.distribution("nvidia-pytriton").locate_file("pytriton")))
    server = server / "tritonserver"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = server / "python_backend_stubs" / version / "triton_python_backend_stub"
    if not stub.exists():
        raise RuntimeError(f"nvidia-pytriton has no stub for Python {version}")
    python = backends / "python"
    python.mkdir(parents=True)
    for file in (
        server / "backends" / "python" / "libtriton_python.so",
        server / "backends" / "python" / "triton_python_backend_utils.py",
        stub,
    ):
        (python / file.name).symlink_to(file)
    return server / "bin" / "tritonserver"
