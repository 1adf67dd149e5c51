# SPDX-License-Identifier: BSD-3-Clause
"""Triton's Python backend, called by tritonclient over HTTP with binary tensors."""

import measuring
from operations import Data
from triton_server import TritonServer
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput


class TritonHttpRoute(measuring.Route):
    def __init__(self) -> None:
        self._server = TritonServer()
        self._client = InferenceServerClient(
            self._server.address,
            connection_timeout=measuring.CALL_SECONDS,
            network_timeout=measuring.CALL_SECONDS,
        )

    def call(self, operation: str, x: Data) -> Data:
        given = InferInput("x", list(x.shape), "FP32")
        given.set_data_from_numpy(x, binary_data=True)
        wanted = InferRequestedOutput("y", binary_data=True)
        return self._client.infer(operation, [given], outputs=[wanted]).as_numpy("y")

    def close(self) -> None:
        self._client.close()
        self._server.close()


if __name__ == "__main__":
    measuring.serve(TritonHttpRoute)
