# SPDX-License-Identifier: BSD-3-Clause
"""An actor on its own Ray instance, on the loopback interface."""

import os
import shutil
import tempfile

import measuring
from operations import OPERATIONS, Data

# Ray reads these variables when it is imported. The second one, made for other systems, keeps its
# servers on the loopback interface.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
import ray  # noqa: E402

STORE_BYTES = 1_500_000_000


@ray.remote(num_cpus=1)
class Worker:
    def run(self, operation: str, x: Data) -> Data:
        return OPERATIONS[operation](x)


class RayActorRoute(measuring.Route):
    def __init__(self) -> None:
        # The paths of Ray's sockets must be short.
        self._folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
        ray.init(
            num_cpus=1,
            object_store_memory=STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
            _node_ip_address="127.0.0.1",
            _temp_dir=self._folder,
            # The actor's process imports `operations` from the same folder as this program.
            runtime_env={"env_vars": {"PYTHONPATH": os.path.dirname(__file__)}},
        )
        self._worker = Worker.remote()

    def call(self, operation: str, x: Data) -> Data:
        return ray.get(self._worker.run.remote(operation, x), timeout=measuring.CALL_SECONDS)

    def close(self) -> None:
        ray.shutdown()
        shutil.rmtree(self._folder, ignore_errors=True)


if __name__ == "__main__":
    measuring.serve(RayActorRoute)
