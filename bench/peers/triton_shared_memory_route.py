# SPDX-License-Identifier: BSD-3-Clause
"""Triton's Python backend, called over HTTP with tensors in its client's system shared memory."""

import measuring
import numpy
from operations import Data
from triton_http_route import TritonHttpRoute
from tritonclient.http import InferInput, InferRequestedOutput
from tritonclient.utils import shared_memory

REGION_BYTES = 128 * 1024 * 1024


class TritonSharedMemoryRoute(TritonHttpRoute):
    def __init__(self) -> None:
        super().__init__()
        self._regions = {}
        for name in ("x", "y"):
            key = f"{self._server.prefix}{name}"
            self._regions[name] = shared_memory.create_shared_memory_region(
                name, key, REGION_BYTES, create_only=True
            )
            self._client.register_system_shared_memory(name, f"/{key}", REGION_BYTES)

    def call(self, operation: str, x: Data) -> Data:
        shared_memory.set_shared_memory_region(self._regions["x"], [x])
        given = InferInput("x", list(x.shape), "FP32")
        given.set_shared_memory("x", x.nbytes)
        wanted = InferRequestedOutput("y")
        wanted.set_shared_memory("y", x.nbytes)
        shape = self._client.infer(operation, [given], outputs=[wanted]).get_output("y")["shape"]
        return shared_memory.get_contents_as_numpy(self._regions["y"], numpy.float32, shape)

    def close(self) -> None:
        self._client.unregister_system_shared_memory()
        for region in self._regions.values():
            shared_memory.destroy_shared_memory_region(region)
        super().close()


if __name__ == "__main__":
    measuring.serve(TritonSharedMemoryRoute)
